// Streams and events: what is asynchronous, what waits for what, and what is refused.
#include <atomic>
#include <thread>

#include "tests/emulator/driver_fixture.h"

namespace frostline::emulator_test {
namespace {

using ::testing::Each;

class StreamTest : public DriverTest {
   protected:
    void SetUp() override {
        DriverTest::SetUp();
        memory_ = allocate(kBytes);
        host_ = pinned(kBytes);
        stream_ = stream();
        other_ = stream();
    }
    void TearDown() override {
        give_back();
        DriverTest::TearDown();
    }
    void give_back() {
        EXPECT_CUDA_OK(cuStreamDestroy(stream_));
        EXPECT_CUDA_OK(cuStreamDestroy(other_));
        EXPECT_CUDA_OK(cuMemFreeHost(host_));
        EXPECT_CUDA_OK(cuMemFree(memory_));
    }
    /// With other settings, and the same objects made anew.
    void start_again(const char* settings) {
        give_back();
        start(settings);
        memory_ = allocate(kBytes);
        host_ = pinned(kBytes);
        stream_ = stream();
        other_ = stream();
    }
    static constexpr std::size_t kBytes = 1 << 16;
    CUdeviceptr memory_ = 0;
    std::byte* host_ = nullptr;
    CUstream stream_ = nullptr;
    CUstream other_ = nullptr;
};

TEST_F(StreamTest, WorkIsDoneInOrderAndLater) {
    Gate gate;
    gate.close(stream_);
    ASSERT_CUDA_OK(cuMemsetD8Async(memory_, 1, kBytes, stream_));
    ASSERT_CUDA_OK(cuMemsetD8Async(memory_, 2, kBytes / 2, stream_));
    ASSERT_CUDA_OK(cuMemcpyDtoHAsync(host_, memory_, kBytes, stream_));
    EXPECT_EQ(cuStreamQuery(stream_), CUDA_ERROR_NOT_READY);
    EXPECT_EQ(host_[0], std::byte{0});
    gate.open();
    ASSERT_CUDA_OK(cuStreamSynchronize(stream_));
    EXPECT_CUDA_OK(cuStreamQuery(stream_));
    EXPECT_EQ(host_[0], std::byte{2});
    EXPECT_EQ(host_[kBytes - 1], std::byte{1});
}

TEST_F(StreamTest, PinnedSourcesAreReadLateAndPageableOnesAtTheCall) {
    Gate gate;
    gate.close(stream_);
    std::vector<std::byte> pageable(kBytes / 2, std::byte{1});
    std::fill_n(host_, kBytes / 2, std::byte{1});
    ASSERT_CUDA_OK(cuMemcpyHtoDAsync(memory_, pageable.data(), kBytes / 2, stream_));
    ASSERT_CUDA_OK(cuMemcpyHtoDAsync(memory_ + kBytes / 2, host_, kBytes / 2, stream_));
    std::fill(pageable.begin(), pageable.end(), std::byte{2});
    std::fill_n(host_, kBytes / 2, std::byte{2});
    gate.open();
    ASSERT_CUDA_OK(cuStreamSynchronize(stream_));
    EXPECT_THAT(read(memory_, kBytes / 2), Each(1));
    EXPECT_THAT(read(memory_ + kBytes / 2, kBytes / 2), Each(2));
}

TEST_F(StreamTest, CopiesToPageableMemoryAreCompleteWhenTheyReturn) {
    std::vector<unsigned char> target(kBytes);
    ASSERT_CUDA_OK(cuMemsetD8Async(memory_, 4, kBytes, stream_));
    ASSERT_CUDA_OK(cuMemcpyDtoHAsync(target.data(), memory_, kBytes, stream_));
    EXPECT_THAT(target, Each(4));
}

TEST_F(StreamTest, AStreamWaitsForAnEventOfAnother) {
    Gate gate;
    gate.close(stream_);
    ASSERT_CUDA_OK(cuMemsetD8Async(memory_, 5, kBytes, stream_));
    const CUevent recorded = event();
    ASSERT_CUDA_OK(cuEventRecord(recorded, stream_));
    ASSERT_CUDA_OK(cuStreamWaitEvent(other_, recorded, 0));
    ASSERT_CUDA_OK(cuMemcpyDtoHAsync(host_, memory_, kBytes, other_));
    EXPECT_EQ(cuEventQuery(recorded), CUDA_ERROR_NOT_READY);
    EXPECT_EQ(cuStreamQuery(other_), CUDA_ERROR_NOT_READY);
    // Destroying an event that is waited for is legal.
    ASSERT_CUDA_OK(cuEventDestroy(recorded));
    gate.open();
    ASSERT_CUDA_OK(cuStreamSynchronize(other_));
    EXPECT_EQ(host_[0], std::byte{5});
}

TEST_F(StreamTest, StreamsDoNotWaitWithoutAnEvent) {
    Gate gate;
    gate.close(stream_);
    ASSERT_CUDA_OK(cuMemsetD8Async(memory_, 5, kBytes, other_));
    ASSERT_CUDA_OK(cuStreamSynchronize(other_));
    EXPECT_EQ(cuStreamQuery(stream_), CUDA_ERROR_NOT_READY);
    gate.open();
    ASSERT_CUDA_OK(cuStreamSynchronize(stream_));
}

TEST_F(StreamTest, AnEventThatWasNeverRecordedIsDone) {
    const CUevent first = event();
    const CUevent second = event();
    EXPECT_CUDA_OK(cuEventQuery(first));
    EXPECT_CUDA_OK(cuEventSynchronize(first));
    float milliseconds = 0;
    EXPECT_EQ(cuEventElapsedTime(&milliseconds, first, second), CUDA_ERROR_INVALID_HANDLE);
    expect_misuse({"event-not-recorded"});
    ASSERT_CUDA_OK(cuEventRecord(first, stream_));
    ASSERT_CUDA_OK(cuEventRecord(second, stream_));
    ASSERT_CUDA_OK(cuEventSynchronize(second));
    EXPECT_CUDA_OK(cuEventElapsedTime(&milliseconds, first, second));
    EXPECT_GE(milliseconds, 0);
    ASSERT_CUDA_OK(cuEventDestroy(first));
    ASSERT_CUDA_OK(cuEventDestroy(second));
}

TEST_F(StreamTest, TheLegacyStreamWaitsForBlockingStreamsAndTheyForIt) {
    const CUstream blocking = stream(CU_STREAM_DEFAULT);
    Gate gate;
    gate.close(blocking);
    ASSERT_CUDA_OK(cuMemsetD8Async(memory_, 1, kBytes, blocking));
    ASSERT_CUDA_OK(cuMemsetD8Async(memory_, 2, kBytes, nullptr));
    ASSERT_CUDA_OK(cuMemcpyDtoHAsync(host_, memory_, kBytes, blocking));
    EXPECT_EQ(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
    EXPECT_CUDA_OK(cuStreamQuery(stream_));  // takes no part
    gate.open();
    ASSERT_CUDA_OK(cuStreamSynchronize(blocking));
    EXPECT_EQ(host_[0], std::byte{2});
    ASSERT_CUDA_OK(cuStreamDestroy(blocking));
}

TEST_F(StreamTest, NonBlockingStreamsTakeNoPartInTheLegacyStream) {
    Gate gate;
    gate.close(stream_);
    ASSERT_CUDA_OK(cuMemsetD8(memory_, 2, kBytes));
    ASSERT_CUDA_OK(cuStreamSynchronize(nullptr));
    EXPECT_EQ(cuStreamQuery(stream_), CUDA_ERROR_NOT_READY);
    gate.open();
    ASSERT_CUDA_OK(cuStreamSynchronize(stream_));
}

TEST_F(StreamTest, EachThreadHasAStreamOfItsOwn) {
    unsigned long long mine = 0;
    unsigned long long theirs = 0;
    ASSERT_CUDA_OK(cuStreamGetId(CU_STREAM_PER_THREAD, &mine));
    std::thread([&] {
        ASSERT_CUDA_OK(cuCtxSetCurrent(context_));
        ASSERT_CUDA_OK(cuStreamGetId(CU_STREAM_PER_THREAD, &theirs));
    }).join();
    EXPECT_NE(mine, theirs);
}

TEST_F(StreamTest, ADestroyedStreamFinishesItsWork) {
    const CUstream brief = stream();
    ASSERT_CUDA_OK(cuMemsetD8Async(memory_, 8, kBytes, brief));
    ASSERT_CUDA_OK(cuStreamDestroy(brief));
    ASSERT_CUDA_OK(cuCtxSynchronize());
    EXPECT_THAT(read(memory_, kBytes), Each(8));
    EXPECT_EQ(cuStreamQuery(brief), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuStreamDestroy(brief), CUDA_ERROR_INVALID_HANDLE);
    expect_misuse({"destroyed-handle", "destroyed-handle"});
}

TEST_F(StreamTest, HostFunctionsMayNotCallTheDriver) {
    CUresult result = CUDA_SUCCESS;
    ASSERT_CUDA_OK(cuLaunchHostFunc(
        stream_,
        [](void* place) {
            std::size_t free = 0;
            *static_cast<CUresult*>(place) = cuMemGetInfo(&free, &free);
        },
        &result));
    ASSERT_CUDA_OK(cuStreamSynchronize(stream_));
    EXPECT_EQ(result, CUDA_ERROR_NOT_PERMITTED);
    expect_misuse({"api-in-host-function"});
}

TEST_F(StreamTest, CallbacksAreToldTheStatus) {
    CUresult status = CUDA_ERROR_UNKNOWN;
    ASSERT_CUDA_OK(cuStreamAddCallback(
        stream_,
        [](CUstream, CUresult said, void* place) { *static_cast<CUresult*>(place) = said; },
        &status, 0));
    ASSERT_CUDA_OK(cuStreamSynchronize(stream_));
    EXPECT_EQ(status, CUDA_SUCCESS);
}

TEST_F(StreamTest, FreeingUnderWorkIsReportedAndWaits) {
    start_again("memory=64MiB,latency_us=100000");
    const CUdeviceptr brief = allocate(kBytes);
    ASSERT_CUDA_OK(cuMemsetD8Async(brief, 1, kBytes, stream_));
    EXPECT_CUDA_OK(cuMemFree(brief));
    EXPECT_CUDA_OK(cuStreamQuery(stream_));
    expect_misuse({"free-under-work"});
    EXPECT_EQ(cuMemFree(brief), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemFree(memory_ + 1), CUDA_ERROR_INVALID_VALUE);
    expect_misuse({"double-free", "not-an-allocation"});
}

TEST_F(StreamTest, EventsAreRecordedInTheirOwnContext) {
    CUcontext second = nullptr;
    ASSERT_CUDA_OK(cuCtxCreate(&second, nullptr, 0, 0));
    const CUevent foreign = event();
    ASSERT_CUDA_OK(cuCtxSetCurrent(context_));
    EXPECT_EQ(cuEventRecord(foreign, stream_), CUDA_ERROR_INVALID_HANDLE);
    expect_misuse({"wrong-device"});
    ASSERT_CUDA_OK(cuCtxDestroy(second));
}

TEST_F(StreamTest, ManyOperationsUnderJitterKeepTheirOrder) {
    start_again("memory=64MiB,jitter_us=50,seed=3");
    const CUevent turn = event(CU_EVENT_DISABLE_TIMING);
    for (unsigned char i = 0; i < 100; ++i) {
        const CUstream now = i % 2 == 0 ? stream_ : other_;
        ASSERT_CUDA_OK(cuStreamWaitEvent(now, turn, 0));
        ASSERT_CUDA_OK(cuMemsetD8Async(memory_, i, kBytes, now));
        ASSERT_CUDA_OK(cuEventRecord(turn, now));
    }
    ASSERT_CUDA_OK(cuEventSynchronize(turn));
    EXPECT_THAT(read(memory_, kBytes), Each(99));
    ASSERT_CUDA_OK(cuEventDestroy(turn));
}

}  // namespace
}  // namespace frostline::emulator_test
