// A fault can be planted on any call of any exported function. The functions are read from the
// library itself, so that none is forgotten.
#include <dlfcn.h>

#include "tests/emulator/exported_functions.h"
#include "tests/emulator/kernel_fixture.h"

namespace frostline::emulator_test {
namespace {

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
