// Settings, and the control interface: what is valid takes effect, what is not is refused.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "tests/emulator/driver_fixture.h"

namespace frostline::emulator_test {
namespace {

class SettingsTest : public DriverTest {
   protected:
    /// A restart with settings that are wrong, and what cuInit makes of them.
    void expect_refused(const char* settings) {
        ASSERT_CUDA_OK(cuDevicePrimaryCtxRelease(0));
        context_ = nullptr;
        EXPECT_EQ(frostline_emulator_restart(settings), -1) << settings;
        EXPECT_EQ(cuInit(0), CUDA_ERROR_INVALID_VALUE) << settings;
        start("");
    }
};

TEST_F(SettingsTest, WrongValuesAreRefused) {
    for (const char* const settings : {"memory=64MB",
                                       "memory=",
                                       "memory=1",
                                       "devices=17",
                                       "devices=-1",
                                       "kernel_speed=0",
                                       "kernel_speed=2",
                                       "kernel_speed=fast",
                                       "granularity=3MiB",
                                       "granularity=1KiB",
                                       "faults=cuMemCreate",
                                       "faults=cuMemCreate:0:2",
                                       "faults=cuNoSuchThing:1:2",
                                       "abort=yes",
                                       "faults=cuMemCreate:1:0",
                                       "version=0",
                                       "version=13",
                                       "version=1e4",
                                       "seed=1x",
                                       "colour=red",
                                       "memory",
                                       "latency_us=99999999999"}) {
        expect_refused(settings);
    }
}

TEST_F(SettingsTest, ValuesTakeEffect) {
    start("devices=3,memory=8MiB,granularity=64KiB");
    int count = 0;
    ASSERT_CUDA_OK(cuDeviceGetCount(&count));
    EXPECT_EQ(count, 3);
    std::size_t total = 0;
    ASSERT_CUDA_OK(cuDeviceTotalMem(&total, 2));
    EXPECT_EQ(total, 8 * kMiB);
    std::size_t granularity = 0;
    const CUmemAllocationProp properties = on_device(0);
    ASSERT_CUDA_OK(
        cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    EXPECT_EQ(granularity, 64u << 10);
}

TEST_F(SettingsTest, TheEnvironmentIsReadAndOverridden) {
    ASSERT_EQ(setenv("FROSTLINE_EMULATOR_MEMORY", "16MiB", 1), 0);
    start("");
    std::size_t total = 0;
    ASSERT_CUDA_OK(cuDeviceTotalMem(&total, 0));
    EXPECT_EQ(total, 16 * kMiB);
    start("memory=32MiB");
    ASSERT_CUDA_OK(cuDeviceTotalMem(&total, 0));
    EXPECT_EQ(total, 32 * kMiB);
    ASSERT_EQ(unsetenv("FROSTLINE_EMULATOR_MEMORY"), 0);
}

TEST_F(SettingsTest, ANameThatTheEnvironmentGotWrongIsToldWithTheNearest) {
    ASSERT_EQ(setenv("FROSTLINE_EMULATOR_MEMROY", "16MiB", 1), 0);
    ASSERT_CUDA_OK(cuDevicePrimaryCtxRelease(0));
    context_ = nullptr;
    testing::internal::CaptureStderr();
    EXPECT_EQ(frostline_emulator_restart(""), -1);
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              "frostline emulator: FROSTLINE_EMULATOR_MEMROY is no setting: did you mean "
              "FROSTLINE_EMULATOR_MEMORY?\n");
    EXPECT_EQ(cuInit(0), CUDA_ERROR_INVALID_VALUE);
    ASSERT_EQ(unsetenv("FROSTLINE_EMULATOR_MEMROY"), 0);
    start("");
}

TEST_F(SettingsTest, NoDevicesIsSaidByInit) {
    ASSERT_CUDA_OK(cuDevicePrimaryCtxRelease(0));
    context_ = nullptr;
    ASSERT_EQ(frostline_emulator_restart("devices=0"), 0);
    EXPECT_EQ(cuInit(0), CUDA_ERROR_NO_DEVICE);
}

TEST_F(SettingsTest, FaultsStrikeTheNthCallAndHaveNoEffect) {
    start("memory=64MiB,faults=cuMemCreate:2:2,cuMemAlloc:1:999");
    const auto first = create(kGranule);
    CUmemGenericAllocationHandle second = 0;
    const CUmemAllocationProp properties = on_device(0);
    EXPECT_EQ(cuMemCreate(&second, kGranule, &properties, 0), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(second, 0u);
    CUdeviceptr address = 0;
    EXPECT_EQ(cuMemAlloc(&address, 10), CUDA_ERROR_UNKNOWN);
    EXPECT_EQ(address, 0u);
    ASSERT_CUDA_OK(cuMemAlloc(&address, 10));
    ASSERT_CUDA_OK(cuMemFree(address));
    ASSERT_CUDA_OK(cuMemRelease(first));
    EXPECT_EQ(frostline_emulator_calls("cuMemCreate"), 2u);
    EXPECT_EQ(frostline_emulator_calls("cuMemAlloc_v2"), 2u);
    EXPECT_EQ(frostline_emulator_calls("cuMemUnmap"), 0u);
}

TEST_F(SettingsTest, AFaultCanBePlantedAtAnyTime) {
    EXPECT_EQ(frostline_emulator_plant_fault("cuNoSuchThing", 1, 2), -1);
    EXPECT_EQ(frostline_emulator_plant_fault("frostline_emulator_calls", 1, 2), -1);
    EXPECT_EQ(frostline_emulator_plant_fault("cuMemFree", 0, 2), -1);
    const CUdeviceptr address = allocate(100);
    ASSERT_EQ(frostline_emulator_plant_fault("cuMemFree", 1, CUDA_ERROR_UNKNOWN), 0);
    EXPECT_EQ(cuMemFree(address), CUDA_ERROR_UNKNOWN);
    EXPECT_CUDA_OK(cuMemFree(address));
    ASSERT_EQ(frostline_emulator_plant_fault("cuCtxSynchronize", 1, 700), 0);
    start("");
    EXPECT_CUDA_OK(cuCtxSynchronize());
}

TEST_F(SettingsTest, LeaksAreReportedByKind) {
    allocate(100);
    pinned(100);
    stream();
    event();
    const CUdeviceptr space = reserve(kGranule);
    const auto handle = create(kGranule);
    ASSERT_CUDA_OK(cuMemMap(space, kGranule, 0, handle, 0));
    context_ = nullptr;
    ASSERT_EQ(frostline_emulator_restart(""), 0);
    // Contexts, streams, events, mappings, allocations, pinned memory, reservations, handles.
    expect_misuse(std::vector<std::string>(8, "leak-at-exit"));
}

TEST_F(SettingsTest, LeaksCanBeKeptQuiet) {
    start("leaks=0");
    allocate(100);
    context_ = nullptr;
    ASSERT_EQ(frostline_emulator_restart(""), 0);
    EXPECT_EQ(frostline_emulator_misuse_count(), 0u);
}

TEST_F(SettingsTest, LeaksAreReportedAtTheEndOfTheProcess) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(
        {
            allocate(100);
            std::exit(0);
        },
        ::testing::ExitedWithCode(0), "leak-at-exit: 1 allocations");
}

TEST_F(SettingsTest, EveryReportHasANameThatIsExplained) {
    EXPECT_EQ(cuMemRelease(1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_NE(frostline_emulator_explain(reported_names()[0].c_str()), nullptr);
    EXPECT_EQ(frostline_emulator_explain("no-such-misuse"), nullptr);
    EXPECT_EQ(frostline_emulator_misuse(1), nullptr);
    expect_misuse({"bad-handle"});
}

TEST_F(SettingsTest, AbortEndsTheProcessAtTheFirstMisuse) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_DEATH(
        {
            frostline_emulator_restart("abort=1");
            cuInit(0);
            cuMemRelease(1);
        },
        "misuse: bad-handle");
}

TEST_F(SettingsTest, ARestartDropsQueuedWork) {
    start("leaks=0");
    const CUdeviceptr memory = allocate(kMiB);
    const CUstream s = stream();
    std::byte* const host = pinned(kMiB);
    Gate gate;
    gate.close(s);
    for (int i = 0; i < 100; ++i) {
        ASSERT_CUDA_OK(cuMemcpyHtoDAsync(memory, host, kMiB, s));
    }
    gate.open();
    context_ = nullptr;
    ASSERT_EQ(frostline_emulator_restart(""), 0);
    // Nothing of before is valid any more.
    ASSERT_CUDA_OK(cuInit(0));
    EXPECT_EQ(cuStreamSynchronize(s), CUDA_ERROR_INVALID_CONTEXT);
    start("");
    EXPECT_EQ(cuStreamSynchronize(s), CUDA_ERROR_INVALID_HANDLE);
    expect_misuse({"destroyed-handle"});
}

TEST_F(SettingsTest, CallsBeforeInitAndInChildrenAreRefused) {
    context_ = nullptr;
    ASSERT_CUDA_OK(cuDevicePrimaryCtxRelease(0));
    ASSERT_EQ(frostline_emulator_restart(""), 0);
    int count = 0;
    EXPECT_EQ(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
    start("");
    const pid_t child = fork();
    if (child == 0) _exit(cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_CUDA_OK(cuDeviceGetCount(&count));
}

TEST_F(SettingsTest, AChildCannotReadDeviceMemory) {
    const CUdeviceptr memory = allocate(kMiB);
    ASSERT_CUDA_OK(cuMemsetD8(memory, 42, kMiB));
    ASSERT_CUDA_OK(cuCtxSynchronize());
    const pid_t child = fork();
    if (child == 0) {
        // Ends quietly by the signal if the memory is not there.
        signal(SIGSEGV, SIG_DFL);
        _exit(*reinterpret_cast<volatile unsigned char*>(memory));
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_FALSE(WIFEXITED(status) && WEXITSTATUS(status) == 42);
    ASSERT_CUDA_OK(cuMemFree(memory));
}

}  // namespace
}  // namespace frostline::emulator_test
