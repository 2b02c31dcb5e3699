// Which symbol a plain name means: by the program's version, the driver's, and the default stream.
#include <dlfcn.h>

#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "tests/emulator/exported_functions.h"
#include "tests/emulator/kernel_fixture.h"
#include "tiers/emulator/emulator.h"

// The form of CUDA 11.3, which cuda.h renames away.
#undef cuGetProcAddress
extern "C" CUresult cuGetProcAddress(const char* symbol, void** address, int version,
                                     cuuint64_t flags);

namespace frostline::emulator_test {
namespace {

constexpr cuuint64_t kPerThread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

class ProcAddressTest : public ::testing::Test {
   protected:
    void SetUp() override { start(""); }
    void TearDown() override { frostline_emulator_restart(""); }
    static void start(const char* settings) { ASSERT_EQ(frostline_emulator_restart(settings), 0); }

    CUdriverProcAddressQueryResult status_ = CU_GET_PROC_ADDRESS_SUCCESS;

    void* find(const char* name, int version, cuuint64_t flags = CU_GET_PROC_ADDRESS_DEFAULT) {
        void* address = this;
        EXPECT_CUDA_OK(cuGetProcAddress_v2(name, &address, version, flags, &status_));
        return address;
    }
    static void* symbol(const char* name) {
        void* const found = dlsym(RTLD_DEFAULT, name);
        EXPECT_NE(found, nullptr) << name;
        return found;
    }
};

TEST_F(ProcAddressTest, TheVersionDecidesBetweenForms) {
    EXPECT_EQ(find("cuMemAlloc", 12000), symbol("cuMemAlloc_v2"));
    EXPECT_EQ(find("cuCtxCreate", 11030), symbol("cuCtxCreate_v2"));
    EXPECT_EQ(find("cuCtxCreate", 11040), symbol("cuCtxCreate_v3"));
    EXPECT_EQ(find("cuCtxCreate", 13000), symbol("cuCtxCreate_v4"));
    EXPECT_EQ(find("cuStreamGetCaptureInfo", 10010), symbol("cuStreamGetCaptureInfo"));
    EXPECT_EQ(find("cuStreamGetCaptureInfo", 12000), symbol("cuStreamGetCaptureInfo_v2"));
    EXPECT_EQ(find("cuStreamGetCaptureInfo", 12030), symbol("cuStreamGetCaptureInfo_v3"));
    EXPECT_EQ(find("cuEventElapsedTime", 12070), symbol("cuEventElapsedTime"));
    EXPECT_EQ(find("cuEventElapsedTime", 12080), symbol("cuEventElapsedTime_v2"));
    EXPECT_EQ(find("cuGetProcAddress", 11030), symbol("cuGetProcAddress"));
    EXPECT_EQ(find("cuGetProcAddress", 12000), symbol("cuGetProcAddress_v2"));
}

TEST_F(ProcAddressTest, SaysWhyThereIsNone) {
    EXPECT_EQ(find("cuNoSuchFunction", 12000), nullptr);
    EXPECT_EQ(status_, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    EXPECT_EQ(find("cuMemAlloc_v2", 12000), nullptr);
    EXPECT_EQ(status_, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    EXPECT_EQ(find("cuLaunchKernelEx", 11050), nullptr);
    EXPECT_EQ(status_, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    EXPECT_NE(find("cuLaunchKernelEx", 11060), nullptr);
    EXPECT_EQ(status_, CU_GET_PROC_ADDRESS_SUCCESS);
}

TEST_F(ProcAddressTest, TheOlderFormReturnsAnError) {
    void* address = this;
    EXPECT_CUDA_OK(cuGetProcAddress("cuMemAlloc", &address, 11030, 0));
    EXPECT_EQ(address, symbol("cuMemAlloc_v2"));
    EXPECT_EQ(cuGetProcAddress("cuLaunchKernelEx", &address, 11030, 0), CUDA_ERROR_NOT_FOUND);
    EXPECT_EQ(address, nullptr);
}

TEST_F(ProcAddressTest, TheFlagChoosesThePerThreadDefaultStream) {
    EXPECT_EQ(find("cuLaunchKernel", 12000, kPerThread), symbol("cuLaunchKernel_ptsz"));
    EXPECT_EQ(find("cuMemcpyHtoD", 12000, kPerThread), symbol("cuMemcpyHtoD_v2_ptds"));
    EXPECT_EQ(find("cuMemcpyHtoD", 6000, kPerThread), symbol("cuMemcpyHtoD_v2"));
    EXPECT_EQ(find("cuMemAlloc", 12000, kPerThread), symbol("cuMemAlloc_v2"));
    EXPECT_EQ(find("cuLaunchKernel", 12000, CU_GET_PROC_ADDRESS_LEGACY_STREAM),
              symbol("cuLaunchKernel"));
}

TEST_F(ProcAddressTest, AnOldDriverHidesWhatCameLater) {
    start("version=11080");
    EXPECT_EQ(find("cuCtxCreate", 11080), symbol("cuCtxCreate_v3"));
    EXPECT_EQ(find("cuLibraryLoadData", 11080), nullptr);
    EXPECT_EQ(status_, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    EXPECT_EQ(find("cuGetProcAddress", 11080), symbol("cuGetProcAddress"));
    void* address = nullptr;
    EXPECT_EQ(cuGetProcAddress_v2("cuInit", &address, 12000, 0, &status_),
              CUDA_ERROR_INVALID_VALUE);
}

// The table is written by hand; the library's own list of symbols says whether it is whole.
TEST_F(ProcAddressTest, KnowsEveryExportedSymbol) {
    // All that brought a new form of some function.
    constexpr int kVersions[] = {2000,  3020,  4000,  4010,  6050,  7000,  8000,
                                 9020,  10000, 10010, 11000, 11010, 11030, 11040,
                                 11060, 12000, 12030, 12040, 12050, 12080, 13000};
    const std::vector<std::string> names = exported_functions();
    const std::set<std::string> exported(names.begin(), names.end());
    std::set<void*> known;
    for (const std::string& name : exported) {
        // The plain name is what stands before the version or the kind of default stream.
        std::string plain = name;
        for (const char* const suffix : {"_ptds", "_ptsz", "_v2", "_v3", "_v4"}) {
            if (plain.ends_with(suffix)) plain.erase(plain.size() - std::strlen(suffix));
        }
        for (const int version : kVersions) {
            known.insert(find(plain.c_str(), version));
            known.insert(find(plain.c_str(), version, kPerThread));
        }
    }
    for (const std::string& name : exported) {
        EXPECT_TRUE(known.contains(symbol(name.c_str()))) << name;
    }
}

TEST_F(ProcAddressTest, RefusesWrongArguments) {
    void* address = nullptr;
    EXPECT_EQ(cuGetProcAddress_v2(nullptr, &address, 12000, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuGetProcAddress_v2("cuInit", nullptr, 12000, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuGetProcAddress_v2("cuInit", &address, 12000, 4, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ProcAddressTest, ResultsHaveNames) {
    const char* text = nullptr;
    EXPECT_CUDA_OK(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text));
    EXPECT_STREQ(text, "CUDA_ERROR_OUT_OF_MEMORY");
    EXPECT_CUDA_OK(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
    EXPECT_STREQ(text, "out of memory");
    EXPECT_CUDA_OK(cuGetErrorString(CUDA_SUCCESS, &text));
    EXPECT_STREQ(text, "no error");
    EXPECT_EQ(cuGetErrorName(static_cast<CUresult>(998), &text), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(text, nullptr);
}

TEST_F(ProcAddressTest, APerThreadStreamDoesNotWaitForTheLegacyOne) {
    ASSERT_CUDA_OK(cuInit(0));
    CUcontext context = nullptr;
    CUmodule module = nullptr;
    CUfunction run_until_set = nullptr;
    ASSERT_CUDA_OK(cuDevicePrimaryCtxRetain(&context, 0));
    ASSERT_CUDA_OK(cuCtxSetCurrent(context));
    ASSERT_CUDA_OK(cuModuleLoad(&module, FROSTLINE_EMULATOR_KERNELS));
    ASSERT_CUDA_OK(cuModuleGetFunction(&run_until_set, module, "run_until_set"));
    const auto stream_id =
        reinterpret_cast<CUresult (*)(CUstream, unsigned long long*)>(symbol("cuStreamGetId_ptsz"));
    unsigned long long per_thread = 0;
    unsigned long long same = 0;
    unsigned long long legacy = 0;
    EXPECT_CUDA_OK(stream_id(nullptr, &per_thread));
    EXPECT_CUDA_OK(cuStreamGetId(CU_STREAM_PER_THREAD, &same));
    EXPECT_CUDA_OK(cuStreamGetId(nullptr, &legacy));
    EXPECT_EQ(per_thread, same);
    EXPECT_NE(per_thread, legacy);
    frostline_emulator_restart("leaks=0");
}

}  // namespace
}  // namespace frostline::emulator_test
