// Graphs: replayed as often as they are launched, in any order that their dependencies allow, on
// the memory that is there then.
#include <set>
#include <string>
#include <thread>

#include "tests/emulator/kernel_fixture.h"

namespace frostline::emulator {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

class GraphTest : public KernelTest {
   protected:
    void SetUp() override {
        KernelTest::SetUp();
        stream_ = stream();
    }
    // Captures what `submit` puts into the stream, and instantiates it.
    template <class Submit>
    CUgraphExec capture(Submit&& submit) {
        CUgraph graph = nullptr;
        CUgraphExec exec = nullptr;
        EXPECT_CUDA(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL));
        submit();
        EXPECT_CUDA(cuStreamEndCapture(stream_, &graph));
        EXPECT_CUDA(cuGraphInstantiate(&exec, graph, 0));
        EXPECT_CUDA(cuGraphDestroy(graph));
        return exec;
    }
    CUresult run(CUgraphExec exec) {
        const CUresult launched = cuGraphLaunch(exec, stream_);
        return launched == CUDA_SUCCESS ? cuStreamSynchronize(stream_) : launched;
    }
    CUstream stream_ = nullptr;
};

TEST_F(GraphTest, ReplaysWhatWasCaptured) {
    const CUdeviceptr data = ints(4);
    const CUgraphExec exec = capture([&] {
        EXPECT_CUDA(add_one(data, 4, stream_));
        EXPECT_CUDA(add_one(data, 4, stream_));
    });
    EXPECT_THAT(read_ints(data, 4), Each(0));
    ASSERT_CUDA(run(exec));
    EXPECT_THAT(read_ints(data, 4), Each(2));
    ASSERT_CUDA(run(exec));
    EXPECT_THAT(read_ints(data, 4), Each(4));
    ASSERT_CUDA(cuGraphExecDestroy(exec));
    EXPECT_EQ(cuGraphLaunch(exec, stream_), CUDA_ERROR_INVALID_VALUE);
    expect_misuse({"destroyed-handle"});
}

TEST_F(GraphTest, ACopyReadsItsSourceWhenItIsReplayed) {
    const CUdeviceptr data = ints(1);
    void* pinned = nullptr;
    ASSERT_CUDA(cuMemAllocHost(&pinned, sizeof(int)));
    int& source = *static_cast<int*>(pinned);
    source = 1;
    const CUgraphExec exec =
        capture([&] { EXPECT_CUDA(cuMemcpyHtoDAsync(data, &source, sizeof(int), stream_)); });
    source = 2;
    ASSERT_CUDA(run(exec));
    EXPECT_THAT(read_ints(data, 1), ElementsAre(2));
}

TEST_F(GraphTest, KeepsItsDependenciesUnderEverySeed) {
    const auto order = [&] {
        const CUdeviceptr data = ints(2);
        const CUstream other = stream();
        const CUevent fork = event();
        const CUevent joined = event();
        const CUgraphExec exec = capture([&] {
            EXPECT_CUDA(fill(data, 10, 2, stream_));
            EXPECT_CUDA(cuEventRecord(fork, stream_));
            EXPECT_CUDA(cuStreamWaitEvent(other, fork, 0));
            EXPECT_CUDA(add_one(data, 1, stream_));
            EXPECT_CUDA(add_one(data + 4, 1, other));
            EXPECT_CUDA(cuEventRecord(joined, other));
            EXPECT_CUDA(cuStreamWaitEvent(stream_, joined, 0));
            EXPECT_CUDA(add_one(data, 2, stream_));
        });
        EXPECT_CUDA(run(exec));
        return read_ints(data, 2);
    };
    for (int seed = 1; seed <= 20; ++seed) {
        start(("leaks=0,seed=" + std::to_string(seed)).c_str());
        stream_ = stream();
        EXPECT_THAT(order(), Each(12)) << "seed " << seed;
    }
}

TEST_F(GraphTest, IndependentNodesRunInAnyOrder) {
    std::set<int> last;
    for (int seed = 1; seed <= 30; ++seed) {
        start(("leaks=0,seed=" + std::to_string(seed)).c_str());
        stream_ = stream();
        const CUdeviceptr data = ints(1);
        CUgraph graph = nullptr;
        ASSERT_CUDA(cuGraphCreate(&graph, 0));
        for (int value = 1; value <= 3; ++value) {
            CUdeviceptr address = data;
            int count = 1;
            void* parameters[] = {&address, &value, &count};
            CUDA_KERNEL_NODE_PARAMS node{};
            node.func = kernel("fill");
            node.gridDimX = node.gridDimY = node.gridDimZ = 1;
            node.blockDimX = node.blockDimY = node.blockDimZ = 1;
            node.kernelParams = parameters;
            CUgraphNode added = nullptr;
            ASSERT_CUDA(cuGraphAddKernelNode(&added, graph, nullptr, 0, &node));
        }
        CUgraphExec exec = nullptr;
        ASSERT_CUDA(cuGraphInstantiate(&exec, graph, 0));
        ASSERT_CUDA(run(exec));
        last.insert(read_ints(data, 1)[0]);
    }
    EXPECT_THAT(last, ElementsAre(1, 2, 3));
}

TEST_F(GraphTest, HandMadeNodesKeepTheirOrder) {
    CUdeviceptr data = ints(1);
    int count = 1;
    int value = 5;
    CUgraph graph = nullptr;
    ASSERT_CUDA(cuGraphCreate(&graph, 0));
    CUgraphNode first = nullptr;
    CUgraphNode between = nullptr;
    CUgraphNode last = nullptr;
    void* fill_parameters[] = {&data, &value, &count};
    void* add_parameters[] = {&data, &count};
    CUDA_KERNEL_NODE_PARAMS node{};
    node.gridDimX = node.gridDimY = node.gridDimZ = 1;
    node.blockDimX = node.blockDimY = node.blockDimZ = 1;
    node.func = kernel("fill");
    node.kernelParams = fill_parameters;
    ASSERT_CUDA(cuGraphAddKernelNode(&first, graph, nullptr, 0, &node));
    ASSERT_CUDA(cuGraphAddEmptyNode(&between, graph, &first, 1));
    node.func = kernel("add_one");
    node.kernelParams = add_parameters;
    ASSERT_CUDA(cuGraphAddKernelNode(&last, graph, &between, 1, &node));
    CUgraph other = nullptr;
    ASSERT_CUDA(cuGraphCreate(&other, 0));
    CUgraphNode stray = nullptr;
    EXPECT_EQ(cuGraphAddEmptyNode(&stray, other, &first, 1), CUDA_ERROR_INVALID_VALUE);
    expect_misuse({"bad-value"});
    CUgraphExec exec = nullptr;
    ASSERT_CUDA(cuGraphInstantiate(&exec, graph, 0));
    ASSERT_CUDA(run(exec));
    EXPECT_THAT(read_ints(data, 1), ElementsAre(6));
}

TEST_F(GraphTest, NamesItsMemoryWhileItIsInstantiated) {
    Mapping mapping;
    EXPECT_EQ(frostline_emulator_captured(mapping.address), 0);
    const CUgraphExec exec = capture([&] { EXPECT_CUDA(fill(mapping.address, 1, 4, stream_)); });
    EXPECT_EQ(frostline_emulator_captured(mapping.address + mapping.bytes - 1), 1);
    EXPECT_EQ(frostline_emulator_captured(mapping.address + mapping.bytes), 0);
    ASSERT_CUDA(cuGraphExecDestroy(exec));
    EXPECT_EQ(frostline_emulator_captured(mapping.address), 0);
}

// C01: memory that a graph names is taken away and the graph replays.
TEST_F(GraphTest, C01ReplayOnUnmappedMemoryIsAnIllegalAccess) {
    Mapping mapping;
    const CUgraphExec exec = capture([&] { EXPECT_CUDA(fill(mapping.address, 1, 4, stream_)); });
    ASSERT_CUDA(run(exec));
    mapping.unmap();
    EXPECT_EQ(run(exec), CUDA_ERROR_ILLEGAL_ADDRESS);
    expect_misuse({"unmapped-access"});
}

TEST_F(GraphTest, UnmappingUnderAReplayIsReported) {
    Mapping mapping;
    Gate gate;
    const CUgraphExec exec = capture([&] {
        EXPECT_CUDA(launch(kernel("run_until_set"), 1, stream_, gate.flag()));
        EXPECT_CUDA(fill(mapping.address, 1, 4, stream_));
    });
    ASSERT_CUDA(cuGraphLaunch(exec, stream_));
    std::thread opener([&gate] {
        while (frostline_emulator_misuse_count() == 0) std::this_thread::yield();
        gate.open();
    });
    mapping.unmap();
    opener.join();
    expect_misuse({"unmap-under-work"});
}

TEST_F(GraphTest, AGraphUnderCaptureIsNobodyElses) {
    CUgraph graph = nullptr;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    ASSERT_CUDA(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ASSERT_CUDA(
        cuStreamGetCaptureInfo(stream_, &status, nullptr, &graph, nullptr, nullptr, nullptr));
    CUgraphExec exec = nullptr;
    EXPECT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
    ASSERT_CUDA(cuStreamEndCapture(stream_, &graph));
    EXPECT_CUDA(cuGraphInstantiate(&exec, graph, 0));
}

TEST_F(GraphTest, CanBeCapturedIntoAnother) {
    const CUdeviceptr data = ints(1);
    const CUgraphExec inner = capture([&] { EXPECT_CUDA(add_one(data, 1, stream_)); });
    const CUgraphExec outer = capture([&] {
        EXPECT_CUDA(cuGraphLaunch(inner, stream_));
        EXPECT_CUDA(cuGraphLaunch(inner, stream_));
    });
    ASSERT_CUDA(run(outer));
    EXPECT_THAT(read_ints(data, 1), ElementsAre(2));
}

TEST_F(GraphTest, LeaksAreReported) {
    capture([] {});
    frostline_emulator_restart("");
    EXPECT_THAT(misuse_names(), ::testing::Contains("leak-at-exit"));
    frostline_emulator_clear_misuse();
}

}  // namespace
}  // namespace frostline::emulator
