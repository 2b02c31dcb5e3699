// A fault can be planted on any call of any exported function. The functions are read from the
// library itself, so that none is forgotten.
#include <dlfcn.h>
#include <elf.h>

#include <cstring>
#include <fstream>
#include <iterator>

#include "tests/emulator/kernel_fixture.h"

namespace frostline::emulator_test {
namespace {

std::vector<std::string> exported_functions() {
    std::ifstream file(FROSTLINE_EMULATOR, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    const auto read = [&bytes](auto& into, std::size_t offset) {
        ASSERT_LE(offset + sizeof(into), bytes.size());
        std::memcpy(&into, bytes.data() + offset, sizeof(into));
    };
    Elf64_Ehdr header{};
    read(header, 0);
    std::vector<std::string> names;
    for (std::size_t i = 0; i < header.e_shnum; ++i) {
        Elf64_Shdr section{};
        read(section, header.e_shoff + i * sizeof(section));
        if (section.sh_type != SHT_DYNSYM) continue;
        Elf64_Shdr strings{};
        read(strings, header.e_shoff + section.sh_link * sizeof(strings));
        for (std::size_t at = 0; at < section.sh_size; at += sizeof(Elf64_Sym)) {
            Elf64_Sym symbol{};
            read(symbol, section.sh_offset + at);
            const std::string name = bytes.data() + strings.sh_offset + symbol.st_name;
            if (symbol.st_shndx != SHN_UNDEF && name.starts_with("cu")) names.push_back(name);
        }
    }
    return names;
}

TEST(PlantedFaultTest, StrikesEveryExportedFunctionOnItsNthCall) {
    // Zeros are enough for functions that return before they look at any of them.
    using AnyFunction = CUresult (*)(void*, void*, void*, void*, void*, void*, void*, void*, void*,
                                     void*, void*, void*);
    constexpr auto kFault = static_cast<CUresult>(777);
    const std::vector<std::string> names = exported_functions();
    EXPECT_GT(names.size(), 200u);
    for (const std::string& name : names) {
        SCOPED_TRACE(name);
        ASSERT_EQ(frostline_emulator_restart("leaks=0"), 0);
        const auto function = reinterpret_cast<AnyFunction>(dlsym(RTLD_DEFAULT, name.c_str()));
        ASSERT_NE(function, nullptr);
        const auto call = [function] {
            return function(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                            nullptr, nullptr, nullptr, nullptr);
        };
        ASSERT_EQ(frostline_emulator_plant_fault(name.c_str(), 1, kFault), 0);
        ASSERT_EQ(frostline_emulator_plant_fault(name.c_str(), 3, kFault), 0);
        EXPECT_EQ(call(), kFault);
        EXPECT_NE(call(), kFault);
        EXPECT_EQ(call(), kFault);
        EXPECT_EQ(frostline_emulator_calls(name.c_str()), 3u);
    }
    frostline_emulator_restart("");
}

TEST_F(KernelTest, APlantedFaultHasNoEffect) {
    const CUdeviceptr data = ints(1);
    ASSERT_EQ(frostline_emulator_plant_fault("cuLaunchKernel", 2, CUDA_ERROR_LAUNCH_FAILED), 0);
    EXPECT_CUDA_OK(add_one(data, 1, nullptr));
    EXPECT_EQ(add_one(data, 1, nullptr), CUDA_ERROR_LAUNCH_FAILED);
    EXPECT_CUDA_OK(add_one(data, 1, nullptr));
    EXPECT_THAT(read_ints(data, 1), ::testing::ElementsAre(2));
}

}  // namespace
}  // namespace frostline::emulator_test
