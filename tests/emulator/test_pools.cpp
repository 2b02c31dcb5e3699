// Stream-ordered memory: there between its allocation and its release in stream order, and only so.
#include "tests/emulator/driver_fixture.h"

namespace frostline::emulator_test {
namespace {

using ::testing::Each;

class PoolTest : public DriverTest {
   protected:
    void SetUp() override {
        DriverTest::SetUp();
        stream_ = stream();
        other_ = stream();
        ASSERT_CUDA_OK(cuDeviceGetDefaultMemPool(&pool_, 0));
    }
    void TearDown() override {
        if (context_ != nullptr) {
            EXPECT_CUDA_OK(cuStreamDestroy(stream_));
            EXPECT_CUDA_OK(cuStreamDestroy(other_));
        }
        DriverTest::TearDown();
    }
    /// The context is broken by now; nothing else can be done with it.
    void reset() {
        ASSERT_CUDA_OK(cuDevicePrimaryCtxReset(0));
        context_ = nullptr;
    }
    std::uint64_t ask(CUmemPool_attribute attribute) {
        cuuint64_t value = 0;
        EXPECT_CUDA_OK(cuMemPoolGetAttribute(pool_, attribute, &value));
        return value;
    }
    CUdeviceptr allocate_in(CUstream s, std::size_t bytes) {
        CUdeviceptr address = 0;
        EXPECT_CUDA_OK(cuMemAllocAsync(&address, bytes, s));
        return address;
    }
    CUstream stream_ = nullptr;
    CUstream other_ = nullptr;
    CUmemoryPool pool_ = nullptr;
};

TEST_F(PoolTest, MemoryIsThereInTheOrderOfItsStream) {
    const CUdeviceptr memory = allocate_in(stream_, kMiB);
    ASSERT_CUDA_OK(cuMemsetD8Async(memory, 4, kMiB, stream_));
    std::byte* const host = pinned(kMiB);
    ASSERT_CUDA_OK(cuMemcpyDtoHAsync(host, memory, kMiB, stream_));
    ASSERT_CUDA_OK(cuMemFreeAsync(memory, stream_));
    ASSERT_CUDA_OK(cuStreamSynchronize(stream_));
    EXPECT_EQ(host[kMiB - 1], std::byte{4});
    ASSERT_CUDA_OK(cuMemFreeHost(host));
}

TEST_F(PoolTest, AnotherStreamDoesNotSeeItBeforeItsOrder) {
    Gate gate;
    gate.close(stream_);
    const CUdeviceptr memory = allocate_in(stream_, kMiB);
    ASSERT_CUDA_OK(cuMemsetD8Async(memory, 4, kMiB, other_));
    EXPECT_EQ(cuStreamSynchronize(other_), CUDA_ERROR_ILLEGAL_ADDRESS);
    expect_misuse({"unmapped-access"});
    gate.open();
    reset();
}

TEST_F(PoolTest, AnotherStreamMayUseItAfterAnEvent) {
    Gate gate;
    gate.close(stream_);
    const CUdeviceptr memory = allocate_in(stream_, kMiB);
    const CUevent ready = event();
    ASSERT_CUDA_OK(cuEventRecord(ready, stream_));
    ASSERT_CUDA_OK(cuStreamWaitEvent(other_, ready, 0));
    ASSERT_CUDA_OK(cuMemsetD8Async(memory, 4, kMiB, other_));
    gate.open();
    ASSERT_CUDA_OK(cuStreamSynchronize(other_));
    ASSERT_CUDA_OK(cuMemFreeAsync(memory, other_));
    ASSERT_CUDA_OK(cuStreamSynchronize(other_));
    ASSERT_CUDA_OK(cuEventDestroy(ready));
}

TEST_F(PoolTest, UseAfterReleaseIsAnAccessToUnmappedMemory) {
    const CUdeviceptr memory = allocate_in(stream_, kMiB);
    ASSERT_CUDA_OK(cuStreamSynchronize(stream_));
    Gate gate;
    gate.close(stream_);
    ASSERT_CUDA_OK(cuMemFreeAsync(memory, stream_));
    ASSERT_CUDA_OK(cuMemsetD8Async(memory, 4, kMiB, stream_));
    gate.open();
    EXPECT_EQ(cuStreamSynchronize(stream_), CUDA_ERROR_ILLEGAL_ADDRESS);
    expect_misuse({"free-under-work", "unmapped-access"});
    reset();
}

TEST_F(PoolTest, ReleaseUnderTheWorkOfAnotherStreamIsReported) {
    const CUdeviceptr memory = allocate_in(stream_, kMiB);
    ASSERT_CUDA_OK(cuStreamSynchronize(stream_));
    Gate gate;
    gate.close(other_);
    ASSERT_CUDA_OK(cuMemsetD8Async(memory, 4, kMiB, other_));
    ASSERT_CUDA_OK(cuMemFreeAsync(memory, stream_));
    ASSERT_CUDA_OK(cuStreamSynchronize(stream_));
    expect_misuse({"free-under-work"});
    gate.open();
    EXPECT_EQ(cuStreamSynchronize(other_), CUDA_ERROR_ILLEGAL_ADDRESS);
    expect_misuse({"unmapped-access"});
    reset();
}

TEST_F(PoolTest, MemoryIsFreedOnceAndOnlyIfItIsFromAPool) {
    const CUdeviceptr memory = allocate_in(stream_, kMiB);
    ASSERT_CUDA_OK(cuMemFreeAsync(memory, stream_));
    EXPECT_EQ(cuMemFreeAsync(memory, stream_), CUDA_ERROR_INVALID_VALUE);
    const CUdeviceptr classic = allocate(100);
    EXPECT_EQ(cuMemFreeAsync(classic, stream_), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemFreeAsync(100, stream_), CUDA_ERROR_INVALID_VALUE);
    expect_misuse({"double-free", "unpooled-free", "not-an-allocation"});
    ASSERT_CUDA_OK(cuMemFree(classic));
    // The plain form frees pooled memory as well.
    const CUdeviceptr again = allocate_in(stream_, kMiB);
    ASSERT_CUDA_OK(cuStreamSynchronize(stream_));
    ASSERT_CUDA_OK(cuMemFree(again));
}

TEST_F(PoolTest, APoolKeepsWhatItsThresholdAllows) {
    cuuint64_t threshold = 4 * kMiB;
    ASSERT_CUDA_OK(cuMemPoolSetAttribute(pool_, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    std::size_t before = 0;
    std::size_t now = 0;
    std::size_t total = 0;
    ASSERT_CUDA_OK(cuMemGetInfo(&before, &total));
    const CUdeviceptr memory = allocate_in(stream_, 6 * kMiB);
    EXPECT_EQ(ask(CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 6 * kMiB);
    ASSERT_CUDA_OK(cuMemFreeAsync(memory, stream_));
    ASSERT_CUDA_OK(cuStreamSynchronize(stream_));
    EXPECT_EQ(ask(CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0u);
    EXPECT_EQ(ask(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 4 * kMiB);
    EXPECT_EQ(ask(CU_MEMPOOL_ATTR_USED_MEM_HIGH), 6 * kMiB);
    ASSERT_CUDA_OK(cuMemGetInfo(&now, &total));
    EXPECT_EQ(now, before - 4 * kMiB);
    const CUdeviceptr again = allocate_in(stream_, 2 * kMiB);
    EXPECT_EQ(ask(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 4 * kMiB);
    ASSERT_CUDA_OK(cuMemFreeAsync(again, stream_));
    ASSERT_CUDA_OK(cuStreamSynchronize(stream_));
    ASSERT_CUDA_OK(cuMemPoolTrimTo(pool_, 0));
    ASSERT_CUDA_OK(cuMemGetInfo(&now, &total));
    EXPECT_EQ(now, before);
}

TEST_F(PoolTest, WhatIsAboutToBeFreedIsWaitedForWhenRoomIsShort) {
    const CUdeviceptr first = allocate_in(stream_, 50 * kMiB);
    ASSERT_CUDA_OK(cuMemFreeAsync(first, stream_));
    const CUdeviceptr second = allocate_in(stream_, 50 * kMiB);
    CUdeviceptr third = 0;
    EXPECT_EQ(cuMemAllocAsync(&third, 50 * kMiB, stream_), CUDA_ERROR_OUT_OF_MEMORY);
    ASSERT_CUDA_OK(cuMemFreeAsync(second, stream_));
    ASSERT_CUDA_OK(cuStreamSynchronize(stream_));
}

TEST_F(PoolTest, PoolsAreMadeAndDestroyed) {
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = 0;
    CUmemoryPool pool = nullptr;
    ASSERT_CUDA_OK(cuMemPoolCreate(&pool, &properties));
    CUdeviceptr memory = 0;
    ASSERT_CUDA_OK(cuMemAllocFromPoolAsync(&memory, kMiB, pool, stream_));
    CUmemoryPool said = nullptr;
    ASSERT_CUDA_OK(cuPointerGetAttribute(&said, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, memory));
    EXPECT_EQ(said, pool);
    ASSERT_CUDA_OK(cuMemPoolDestroy(pool));
    ASSERT_CUDA_OK(cuMemsetD8Async(memory, 1, kMiB, stream_));
    ASSERT_CUDA_OK(cuMemFreeAsync(memory, stream_));
    ASSERT_CUDA_OK(cuStreamSynchronize(stream_));
    EXPECT_EQ(cuMemPoolDestroy(pool), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemPoolDestroy(pool_), CUDA_ERROR_INVALID_VALUE);
    expect_misuse({"destroyed-handle", "bad-value"});
}

}  // namespace
}  // namespace frostline::emulator_test
