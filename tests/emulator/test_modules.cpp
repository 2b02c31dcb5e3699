// Modules and libraries: what loads and what is refused, and what is known of a kernel.
#include <fstream>
#include <iterator>

#include "tests/emulator/kernel_fixture.h"

namespace frostline::emulator_test {
namespace {

using ::testing::ElementsAre;

using ModuleTest = KernelTest;

std::vector<char> read_file(const char* path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST_F(ModuleTest, LoadsAnImageFromMemory) {
    const std::vector<char> image = read_file(FROSTLINE_EMULATOR_KERNELS);
    CUmodule module = nullptr;
    ASSERT_CUDA_OK(cuModuleLoadData(&module, image.data()));
    CUfunction fill = nullptr;
    ASSERT_CUDA_OK(cuModuleGetFunction(&fill, module, "fill"));
    const CUdeviceptr data = ints(4);
    ASSERT_CUDA_OK(launch(fill, 4, nullptr, data, 7, 4));
    EXPECT_THAT(read_ints(data, 4), ElementsAre(7, 7, 7, 7));
    EXPECT_CUDA_OK(cuModuleUnload(module));
}

TEST_F(ModuleTest, RefusesWhatIsNotForThisMachine) {
    CUmodule module = nullptr;
    EXPECT_EQ(cuModuleLoadData(&module, ".version 8.0\n.target sm_90\n"),
              CUDA_ERROR_NO_BINARY_FOR_GPU);
    EXPECT_EQ(cuModuleLoadData(&module, "nonsense"), CUDA_ERROR_INVALID_IMAGE);
    std::vector<char> cubin = read_file(FROSTLINE_EMULATOR_KERNELS);
    cubin[18] = static_cast<char>(190);  // the machine in an ELF header: NVIDIA's
    EXPECT_EQ(cuModuleLoadDataEx(&module, cubin.data(), 0, nullptr, nullptr),
              CUDA_ERROR_NO_BINARY_FOR_GPU);
    EXPECT_EQ(cuModuleLoad(&module, "/nonexistent/module.so"), CUDA_ERROR_FILE_NOT_FOUND);
    EXPECT_EQ(cuModuleLoad(&module, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ModuleTest, FindsKernelsByNameAndNothingElse) {
    CUfunction function = nullptr;
    EXPECT_EQ(cuModuleGetFunction(&function, module_, "no_such"), CUDA_ERROR_NOT_FOUND);
    EXPECT_EQ(kernel("fill"), kernel("fill"));
    CUdeviceptr address = 0;
    std::size_t bytes = 0;
    EXPECT_EQ(cuModuleGetGlobal(&address, &bytes, module_, "fill"), CUDA_ERROR_NOT_FOUND);
    CUmodule owner = nullptr;
    EXPECT_CUDA_OK(cuFuncGetModule(&owner, kernel("fill")));
    EXPECT_EQ(owner, module_);
    const char* name = nullptr;
    EXPECT_CUDA_OK(cuFuncGetName(&name, kernel("fill")));
    EXPECT_STREQ(name, "fill");
}

TEST_F(ModuleTest, TellsTheLayoutOfParameters) {
    const CUfunction function = kernel("store_mixed");
    std::vector<std::size_t> offsets;
    std::vector<std::size_t> sizes;
    std::size_t offset = 0;
    std::size_t size = 0;
    for (std::size_t i = 0; cuFuncGetParamInfo(function, i, &offset, &size) == CUDA_SUCCESS; ++i) {
        offsets.push_back(offset);
        sizes.push_back(size);
    }
    EXPECT_THAT(offsets, ElementsAre(0, 8, 16, 24, 28, 32));
    EXPECT_THAT(sizes, ElementsAre(8, 1, 8, 2, 4, 8));
}

TEST_F(ModuleTest, TellsAttributesAndOccupancy) {
    const CUfunction function = kernel("fill");
    int value = 0;
    EXPECT_CUDA_OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
    EXPECT_EQ(value, 1024);
    EXPECT_CUDA_OK(
        cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100000));
    EXPECT_EQ(
        cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1 << 20),
        CUDA_ERROR_INVALID_VALUE);
    EXPECT_CUDA_OK(cuFuncSetCacheConfig(function, CU_FUNC_CACHE_PREFER_L1));
    EXPECT_CUDA_OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, function, 256, 0));
    EXPECT_EQ(value, 8);
    int grid = 0;
    int block = 0;
    EXPECT_CUDA_OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, function, nullptr, 0, 0));
    EXPECT_EQ(block, 1024);
    EXPECT_CUDA_OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
    EXPECT_EQ(grid, 2 * value);
}

TEST_F(ModuleTest, AnUnloadedModuleIsGone) {
    CUmodule module = nullptr;
    ASSERT_CUDA_OK(cuModuleLoad(&module, FROSTLINE_EMULATOR_KERNELS));
    CUfunction function = nullptr;
    ASSERT_CUDA_OK(cuModuleGetFunction(&function, module, "do_nothing"));
    ASSERT_CUDA_OK(cuModuleUnload(module));
    EXPECT_EQ(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(launch(function, 1, nullptr), CUDA_ERROR_INVALID_HANDLE);
    expect_misuse({"destroyed-handle", "destroyed-handle"});
    EXPECT_EQ(cuModuleUnload(reinterpret_cast<CUmodule>(0x1234)), CUDA_ERROR_INVALID_HANDLE);
    expect_misuse({"bad-handle"});
}

TEST_F(ModuleTest, UnloadingUnderARunningKernelIsReportedAndWaits) {
    CUmodule module = nullptr;
    ASSERT_CUDA_OK(cuModuleLoad(&module, FROSTLINE_EMULATOR_KERNELS));
    CUfunction nothing = nullptr;
    ASSERT_CUDA_OK(cuModuleGetFunction(&nothing, module, "do_nothing"));
    const CUstream work = stream();
    under_work(
        work, [&] { EXPECT_CUDA_OK(launch(nothing, 1, work)); },
        [&] {
            EXPECT_CUDA_OK(cuModuleUnload(module));
            EXPECT_CUDA_OK(cuStreamQuery(work));
        });
    expect_misuse({"unload-under-work"});
}

TEST_F(ModuleTest, ALibrarysKernelIsAcceptedAsAFunction) {
    CUlibrary library = nullptr;
    ASSERT_CUDA_OK(cuLibraryLoadFromFile(&library, FROSTLINE_EMULATOR_KERNELS, nullptr, nullptr, 0,
                                         nullptr, nullptr, 0));
    CUkernel fill = nullptr;
    ASSERT_CUDA_OK(cuLibraryGetKernel(&fill, library, "fill"));
    const CUdeviceptr data = ints(2);
    ASSERT_CUDA_OK(launch(reinterpret_cast<CUfunction>(fill), 2, nullptr, data, 5, 2));
    EXPECT_THAT(read_ints(data, 2), ElementsAre(5, 5));
    CUfunction function = nullptr;
    ASSERT_CUDA_OK(cuKernelGetFunction(&function, fill));
    ASSERT_CUDA_OK(launch(function, 2, nullptr, data, 6, 2));
    EXPECT_THAT(read_ints(data, 2), ElementsAre(6, 6));
    CUmodule module = nullptr;
    CUmodule again = nullptr;
    ASSERT_CUDA_OK(cuLibraryGetModule(&module, library));
    ASSERT_CUDA_OK(cuFuncGetModule(&again, function));
    EXPECT_EQ(module, again);
    std::size_t offset = 0;
    std::size_t size = 0;
    EXPECT_CUDA_OK(cuKernelGetParamInfo(fill, 1, &offset, &size));
    EXPECT_EQ(offset, 8u);
    EXPECT_EQ(size, 4u);
    EXPECT_EQ(cuKernelGetParamInfo(fill, 3, &offset, &size), CUDA_ERROR_INVALID_VALUE);
    ASSERT_CUDA_OK(cuLibraryUnload(library));
    EXPECT_EQ(launch(function, 2, nullptr, data, 7, 2), CUDA_ERROR_INVALID_HANDLE);
    expect_misuse({"destroyed-handle"});
}

TEST_F(ModuleTest, LeakedModulesAreReported) {
    start("");
    frostline_emulator_restart("");
    const std::vector<std::string> names = reported_names();
    EXPECT_THAT(names, ::testing::Contains("leak-at-exit"));
    bool named = false;
    for (std::size_t i = 0; i < frostline_emulator_misuse_count(); ++i) {
        named = named ||
                std::string(frostline_emulator_misuse(i)).find("1 modules") != std::string::npos;
    }
    EXPECT_TRUE(named);
    frostline_emulator_clear_misuse();
}

}  // namespace
}  // namespace frostline::emulator_test
