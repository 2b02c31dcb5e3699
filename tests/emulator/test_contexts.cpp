// Devices and contexts: which is current to whom, and what each says of itself.
#include <thread>

#include "tests/emulator/driver_fixture.h"

namespace frostline::emulator_test {
namespace {

using ::testing::Each;

class ContextTest : public DriverTest {
   protected:
    static CUcontext current() {
        CUcontext context = nullptr;
        EXPECT_CUDA_OK(cuCtxGetCurrent(&context));
        return context;
    }
    static CUcontext make(int device = 0) {
        CUcontext context = nullptr;
        EXPECT_CUDA_OK(cuCtxCreate(&context, nullptr, 0, device));
        return context;
    }
};

TEST_F(ContextTest, AThreadBeginsWithoutAContext) {
    std::thread([] {
        CUdeviceptr address = 0;
        EXPECT_EQ(cuMemAlloc(&address, 10), CUDA_ERROR_INVALID_CONTEXT);
        EXPECT_EQ(current(), nullptr);
        EXPECT_EQ(cuCtxPopCurrent(nullptr), CUDA_ERROR_INVALID_CONTEXT);
    }).join();
    expect_misuse({"no-context", "no-context"});
}

TEST_F(ContextTest, ContextsAreStacked) {
    const CUcontext second = make();
    EXPECT_EQ(current(), second);
    CUcontext popped = nullptr;
    ASSERT_CUDA_OK(cuCtxPopCurrent(&popped));
    EXPECT_EQ(popped, second);
    EXPECT_EQ(current(), context_);
    ASSERT_CUDA_OK(cuCtxPushCurrent(second));
    ASSERT_CUDA_OK(cuCtxSetCurrent(context_));
    EXPECT_EQ(current(), context_);
    ASSERT_CUDA_OK(cuCtxDestroy(second));
    EXPECT_EQ(cuCtxDestroy(second), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(cuCtxSetCurrent(second), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(cuCtxDestroy(context_), CUDA_ERROR_INVALID_CONTEXT);
    expect_misuse({"destroyed-handle", "destroyed-handle", "bad-handle"});
}

TEST_F(ContextTest, AContextTakesItsMemoryAlong) {
    std::size_t before = 0;
    std::size_t after = 0;
    std::size_t total = 0;
    ASSERT_CUDA_OK(cuMemGetInfo(&before, &total));
    const CUcontext second = make();
    allocate(kMiB);
    stream();
    event();
    ASSERT_CUDA_OK(cuCtxDestroy(second));
    EXPECT_EQ(current(), context_);
    ASSERT_CUDA_OK(cuMemGetInfo(&after, &total));
    EXPECT_EQ(before, after);
}

TEST_F(ContextTest, PrimaryContextsAreCounted) {
    CUcontext again = nullptr;
    ASSERT_CUDA_OK(cuDevicePrimaryCtxRetain(&again, 0));
    EXPECT_EQ(again, context_);
    unsigned flags = 0;
    int active = 0;
    ASSERT_CUDA_OK(cuDevicePrimaryCtxRelease(0));
    ASSERT_CUDA_OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    EXPECT_EQ(active, 1);
    ASSERT_CUDA_OK(cuDevicePrimaryCtxRelease(0));
    ASSERT_CUDA_OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    EXPECT_EQ(active, 0);
    EXPECT_EQ(cuDevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT);
    expect_misuse({"double-release"});
    CUdeviceptr address = 0;
    EXPECT_EQ(cuMemAlloc(&address, 10), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    expect_misuse({"no-context"});
    context_ = nullptr;
}

TEST_F(ContextTest, DevicesSayWhatTheyAre) {
    start("devices=2");
    char id[32];
    ASSERT_CUDA_OK(cuDeviceGetPCIBusId(id, sizeof(id), 1));
    CUdevice found = -1;
    ASSERT_CUDA_OK(cuDeviceGetByPCIBusId(&found, id));
    EXPECT_EQ(found, 1);
    CUuuid first;
    CUuuid second;
    ASSERT_CUDA_OK(cuDeviceGetUuid(&first, 0));
    ASSERT_CUDA_OK(cuDeviceGetUuid(&second, 1));
    EXPECT_NE(std::string(first.bytes, 16), std::string(second.bytes, 16));
    int value = 0;
    ASSERT_CUDA_OK(
        cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
    EXPECT_EQ(value, 1);
    ASSERT_CUDA_OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 0));
    EXPECT_EQ(value, 0);
    EXPECT_EQ(cuDeviceGet(&found, 2), CUDA_ERROR_INVALID_DEVICE);
}

TEST_F(ContextTest, PeerAccessIsEnabledOnce) {
    start("devices=2,memory=64MiB");
    CUcontext second = nullptr;
    ASSERT_CUDA_OK(cuDevicePrimaryCtxRetain(&second, 1));
    int can = 0;
    ASSERT_CUDA_OK(cuDeviceCanAccessPeer(&can, 0, 1));
    EXPECT_EQ(can, 1);
    ASSERT_CUDA_OK(cuCtxEnablePeerAccess(second, 0));
    EXPECT_EQ(cuCtxEnablePeerAccess(second, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    ASSERT_CUDA_OK(cuCtxDisablePeerAccess(second));
    EXPECT_EQ(cuCtxDisablePeerAccess(second), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    ASSERT_CUDA_OK(cuDevicePrimaryCtxRelease(1));
}

TEST_F(ContextTest, CopiesBetweenDevices) {
    start("devices=2,memory=64MiB");
    CUcontext second = nullptr;
    ASSERT_CUDA_OK(cuDevicePrimaryCtxRetain(&second, 1));
    const CUdeviceptr here = allocate(kMiB);
    ASSERT_CUDA_OK(cuCtxSetCurrent(second));
    const CUdeviceptr there = allocate(kMiB);
    ASSERT_CUDA_OK(cuMemsetD8(there, 3, kMiB));
    ASSERT_CUDA_OK(cuCtxSynchronize());
    ASSERT_CUDA_OK(cuCtxSetCurrent(context_));
    ASSERT_CUDA_OK(cuMemcpyPeer(here, context_, there, second, kMiB));
    EXPECT_THAT(read(here, 100), Each(3));
    ASSERT_CUDA_OK(cuMemFree(here));
    ASSERT_CUDA_OK(cuDevicePrimaryCtxRelease(1));
}

TEST_F(ContextTest, WorkIsGivenToTheDeviceThatOwnsTheMemory) {
    start("devices=2,memory=64MiB");
    CUcontext second = nullptr;
    ASSERT_CUDA_OK(cuDevicePrimaryCtxRetain(&second, 1));
    const CUdeviceptr memory = allocate(kMiB);
    const CUstream own = stream();
    ASSERT_CUDA_OK(cuCtxSetCurrent(second));
    // The null stream is the current device's, and the stream is the other's.
    EXPECT_CUDA_OK(cuMemsetD8(memory, 1, kMiB));
    EXPECT_CUDA_OK(cuCtxSynchronize());
    EXPECT_CUDA_OK(cuMemsetD8Async(memory, 1, kMiB, own));
    EXPECT_CUDA_OK(cuStreamSynchronize(own));  // waiting is nobody's in particular
    EXPECT_THAT(read(memory, 10), Each(1));
    EXPECT_CUDA_OK(cuMemFree(memory));
    expect_misuse({"wrong-device", "wrong-device", "wrong-device", "wrong-device"});
    ASSERT_CUDA_OK(cuStreamDestroy(own));
    ASSERT_CUDA_OK(cuDevicePrimaryCtxRelease(1));
}

TEST_F(ContextTest, LimitsAreKept) {
    std::size_t value = 0;
    ASSERT_CUDA_OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
    ASSERT_CUDA_OK(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE));
    EXPECT_EQ(value, 4096u);
    EXPECT_EQ(cuCtxGetLimit(&value, CU_LIMIT_MAX), CUDA_ERROR_UNSUPPORTED_LIMIT);
}

}  // namespace
}  // namespace frostline::emulator_test
