// Stream capture: what becomes a node, what is illegal meanwhile, and how captures are spoiled.
#include <cstdint>
#include <thread>

#include "tests/emulator/kernel_fixture.h"

namespace frostline::emulator_test {
namespace {

using ::testing::Each;

class CaptureTest : public KernelTest {
   protected:
    void SetUp() override {
        KernelTest::SetUp();
        captured_ = stream();
        other_ = stream();
        data_ = ints(4);
    }
    void begin(CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL) {
        ASSERT_CUDA_OK(cuStreamBeginCapture(captured_, mode));
    }
    CUresult end() { return cuStreamEndCapture(captured_, &graph_); }
    CUstreamCaptureStatus status(CUstream stream) {
        CUstreamCaptureStatus found = CU_STREAM_CAPTURE_STATUS_NONE;
        EXPECT_CUDA_OK(cuStreamIsCapturing(stream, &found));
        return found;
    }
    // A captured stream in which this call was made cannot be ended with success any more.
    void expect_spoiled() {
        EXPECT_EQ(status(captured_), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
        EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        EXPECT_EQ(graph_, nullptr);
        expect_misuse({"illegal-during-capture"});
        EXPECT_CUDA_OK(add_one(data_, 4, captured_));
        EXPECT_CUDA_OK(cuStreamSynchronize(captured_));
    }
    std::size_t nodes() {
        std::size_t count = 0;
        EXPECT_CUDA_OK(cuGraphGetNodes(graph_, nullptr, &count));
        return count;
    }

    CUstream captured_ = nullptr;
    CUstream other_ = nullptr;
    CUdeviceptr data_ = 0;
    CUgraph graph_ = nullptr;
};

TEST_F(CaptureTest, OperationsBecomeNodesAndDoNotRun) {
    begin();
    ASSERT_CUDA_OK(add_one(data_, 4, captured_));
    ASSERT_CUDA_OK(cuMemsetD32Async(data_, 3, 4, captured_));
    EXPECT_EQ(status(captured_), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    ASSERT_CUDA_OK(end());
    EXPECT_EQ(status(captured_), CU_STREAM_CAPTURE_STATUS_NONE);
    EXPECT_EQ(nodes(), 2u);
    EXPECT_THAT(read_ints(data_, 4), Each(0));
    ASSERT_CUDA_OK(cuGraphDestroy(graph_));
}

TEST_F(CaptureTest, TellsWhatIsKnownOfIt) {
    begin();
    CUstreamCaptureStatus found = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t id = 0;
    CUgraph graph = nullptr;
    const CUgraphNode* dependencies = nullptr;
    std::size_t count = 99;
    const auto ask = [&] {
        return cuStreamGetCaptureInfo(captured_, &found, &id, &graph, &dependencies, nullptr,
                                      &count);
    };
    ASSERT_CUDA_OK(ask());
    EXPECT_EQ(found, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    EXPECT_NE(id, 0u);
    EXPECT_EQ(count, 0u);
    ASSERT_CUDA_OK(add_one(data_, 4, captured_));
    ASSERT_CUDA_OK(ask());
    ASSERT_EQ(count, 1u);
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    EXPECT_CUDA_OK(cuGraphNodeGetType(dependencies[0], &type));
    EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_KERNEL);
    ASSERT_CUDA_OK(end());
    EXPECT_EQ(graph, graph_);
}

TEST_F(CaptureTest, OnlyAStreamThatIsNotCapturedCanBe) {
    begin();
    EXPECT_EQ(cuStreamBeginCapture(captured_, CU_STREAM_CAPTURE_MODE_GLOBAL),
              CUDA_ERROR_ILLEGAL_STATE);
    EXPECT_EQ(cuStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL),
              CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_EQ(cuStreamEndCapture(other_, &graph_), CUDA_ERROR_ILLEGAL_STATE);
    expect_misuse({"illegal-during-capture", "illegal-during-capture", "illegal-during-capture"});
    EXPECT_CUDA_OK(end());
}

TEST_F(CaptureTest, WaitingForTheStreamSpoilsIt) {
    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT_EQ(cuStreamSynchronize(captured_), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    expect_spoiled();
}

TEST_F(CaptureTest, AskingTheStreamSpoilsIt) {
    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT_EQ(cuStreamQuery(captured_), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    expect_spoiled();
}

TEST_F(CaptureTest, AllocatingIsUnsafeUnlessTheModeIsRelaxed) {
    CUdeviceptr memory = 0;
    begin();
    EXPECT_EQ(cuMemAlloc(&memory, 64), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    expect_spoiled();
    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT_CUDA_OK(cuMemAlloc(&memory, 64));
    EXPECT_CUDA_OK(end());
}

TEST_F(CaptureTest, AThreadMayLowerItsModeForUnsafeCalls) {
    begin();
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    ASSERT_CUDA_OK(cuThreadExchangeStreamCaptureMode(&mode));
    EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    CUdeviceptr memory = 0;
    EXPECT_CUDA_OK(cuMemAlloc(&memory, 64));
    ASSERT_CUDA_OK(cuThreadExchangeStreamCaptureMode(&mode));
    EXPECT_CUDA_OK(end());
}

TEST_F(CaptureTest, OtherThreadsAreHeldUpByGlobalCapturesOnly) {
    const auto allocate_elsewhere = [this] {
        CUresult result = CUDA_SUCCESS;
        std::thread([&] {
            CUdeviceptr memory = 0;
            EXPECT_CUDA_OK(cuCtxSetCurrent(context_));
            result = cuMemAlloc(&memory, 64);
        }).join();
        return result;
    };
    begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    EXPECT_CUDA_OK(allocate_elsewhere());
    EXPECT_CUDA_OK(end());
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT_EQ(allocate_elsewhere(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    expect_spoiled();
}

TEST_F(CaptureTest, OnlyTheThreadThatBeganItMayEndIt) {
    begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    CUresult result = CUDA_SUCCESS;
    std::thread([&] {
        EXPECT_CUDA_OK(cuCtxSetCurrent(context_));
        result = end();
    }).join();
    EXPECT_EQ(result, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    expect_misuse({"illegal-during-capture"});
    EXPECT_CUDA_OK(end());
}

TEST_F(CaptureTest, TheLegacyStreamIsUnusableWhileABlockingOneIsCaptured) {
    ASSERT_CUDA_OK(cuStreamCreate(&captured_, CU_STREAM_DEFAULT));
    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    CUstreamCaptureStatus found = CU_STREAM_CAPTURE_STATUS_NONE;
    EXPECT_EQ(cuStreamIsCapturing(nullptr, &found), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    EXPECT_EQ(status(captured_), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    EXPECT_EQ(add_one(data_, 4, nullptr), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    expect_spoiled();
}

TEST_F(CaptureTest, AForkedStreamJoinsThroughEvents) {
    const CUevent fork = event();
    const CUevent joined = event();
    begin();
    ASSERT_CUDA_OK(add_one(data_, 4, captured_));
    ASSERT_CUDA_OK(cuEventRecord(fork, captured_));
    ASSERT_CUDA_OK(cuStreamWaitEvent(other_, fork, 0));
    EXPECT_EQ(status(other_), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    ASSERT_CUDA_OK(add_one(data_, 4, other_));
    ASSERT_CUDA_OK(cuEventRecord(joined, other_));
    ASSERT_CUDA_OK(cuStreamWaitEvent(captured_, joined, 0));
    ASSERT_CUDA_OK(add_one(data_, 4, captured_));
    ASSERT_CUDA_OK(end());
    EXPECT_EQ(status(other_), CU_STREAM_CAPTURE_STATUS_NONE);
    EXPECT_EQ(nodes(), 3u);
    // Of an event that was captured nothing can be asked, and nothing can wait for it.
    EXPECT_EQ(cuEventQuery(fork), CUDA_ERROR_CAPTURED_EVENT);
    EXPECT_EQ(cuStreamWaitEvent(other_, fork, 0), CUDA_ERROR_CAPTURED_EVENT);
    expect_misuse({"illegal-during-capture", "illegal-during-capture"});
}

TEST_F(CaptureTest, WorkThatIsNotJoinedIsAnError) {
    const CUevent fork = event();
    begin();
    ASSERT_CUDA_OK(cuEventRecord(fork, captured_));
    ASSERT_CUDA_OK(cuStreamWaitEvent(other_, fork, 0));
    ASSERT_CUDA_OK(add_one(data_, 4, other_));
    EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    EXPECT_EQ(graph_, nullptr);
    expect_misuse({"not-captured-whole"});
    EXPECT_EQ(status(other_), CU_STREAM_CAPTURE_STATUS_NONE);
}

TEST_F(CaptureTest, AForkedStreamCannotEndIt) {
    const CUevent fork = event();
    begin();
    ASSERT_CUDA_OK(cuEventRecord(fork, captured_));
    ASSERT_CUDA_OK(cuStreamWaitEvent(other_, fork, 0));
    EXPECT_EQ(cuStreamEndCapture(other_, &graph_), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    expect_spoiled();
}

TEST_F(CaptureTest, TwoCapturesCannotBecomeOne) {
    const CUevent recorded = event();
    begin();
    ASSERT_CUDA_OK(cuStreamBeginCapture(other_, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ASSERT_CUDA_OK(cuEventRecord(recorded, other_));
    EXPECT_EQ(cuStreamWaitEvent(captured_, recorded, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
    EXPECT_EQ(cuStreamEndCapture(other_, &graph_), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    expect_spoiled();
}

TEST_F(CaptureTest, ACapturedStreamCannotWaitForOrdinaryWork) {
    const CUevent recorded = event();
    ASSERT_CUDA_OK(cuEventRecord(recorded, other_));
    begin();
    EXPECT_EQ(cuStreamWaitEvent(captured_, recorded, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    expect_spoiled();
}

TEST_F(CaptureTest, DependenciesCanBeReplaced) {
    begin();
    ASSERT_CUDA_OK(add_one(data_, 4, captured_));
    ASSERT_CUDA_OK(cuStreamUpdateCaptureDependencies(captured_, nullptr, nullptr, 0,
                                                     CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    ASSERT_CUDA_OK(add_one(data_, 4, captured_));
    ASSERT_CUDA_OK(end());
    std::size_t roots = 0;
    EXPECT_CUDA_OK(cuGraphGetRootNodes(graph_, nullptr, &roots));
    EXPECT_EQ(roots, 2u);
    EXPECT_EQ(cuStreamUpdateCaptureDependencies(captured_, nullptr, nullptr, 0, 0),
              CUDA_ERROR_ILLEGAL_STATE);
}

}  // namespace
}  // namespace frostline::emulator_test
