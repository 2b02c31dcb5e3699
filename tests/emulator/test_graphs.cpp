// Graphs: replayed as often as they are launched, in any order that their dependencies allow, on
// the memory that is there then.
#include <set>
#include <string>

#include "tests/emulator/kernel_fixture.h"

namespace frostline::emulator_test {
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
        EXPECT_CUDA_OK(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL));
        submit();
        EXPECT_CUDA_OK(cuStreamEndCapture(stream_, &graph));
        EXPECT_CUDA_OK(cuGraphInstantiate(&exec, graph, 0));
        EXPECT_CUDA_OK(cuGraphDestroy(graph));
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
        EXPECT_CUDA_OK(add_one(data, 4, stream_));
        EXPECT_CUDA_OK(add_one(data, 4, stream_));
    });
    EXPECT_THAT(read_ints(data, 4), Each(0));
    ASSERT_CUDA_OK(run(exec));
    EXPECT_THAT(read_ints(data, 4), Each(2));
    ASSERT_CUDA_OK(run(exec));
    EXPECT_THAT(read_ints(data, 4), Each(4));
    ASSERT_CUDA_OK(cuGraphExecDestroy(exec));
    EXPECT_EQ(cuGraphLaunch(exec, stream_), CUDA_ERROR_INVALID_VALUE);
    expect_misuse({"destroyed-handle"});
}

TEST_F(GraphTest, ACopyReadsItsSourceWhenItIsReplayed) {
    const CUdeviceptr data = ints(1);
    void* pinned = nullptr;
    ASSERT_CUDA_OK(cuMemAllocHost(&pinned, sizeof(int)));
    int& source = *static_cast<int*>(pinned);
    source = 1;
    const CUgraphExec exec =
        capture([&] { EXPECT_CUDA_OK(cuMemcpyHtoDAsync(data, &source, sizeof(int), stream_)); });
    source = 2;
    ASSERT_CUDA_OK(run(exec));
    EXPECT_THAT(read_ints(data, 1), ElementsAre(2));
}

TEST_F(GraphTest, KeepsItsDependenciesUnderEverySeed) {
    const auto order = [&] {
        const CUdeviceptr data = ints(2);
        const CUstream other = stream();
        const CUevent fork = event();
        const CUevent joined = event();
        const CUgraphExec exec = capture([&] {
            EXPECT_CUDA_OK(fill(data, 10, 2, stream_));
            EXPECT_CUDA_OK(cuEventRecord(fork, stream_));
            EXPECT_CUDA_OK(cuStreamWaitEvent(other, fork, 0));
            EXPECT_CUDA_OK(add_one(data, 1, stream_));
            EXPECT_CUDA_OK(add_one(data + 4, 1, other));
            EXPECT_CUDA_OK(cuEventRecord(joined, other));
            EXPECT_CUDA_OK(cuStreamWaitEvent(stream_, joined, 0));
            EXPECT_CUDA_OK(add_one(data, 2, stream_));
        });
        EXPECT_CUDA_OK(run(exec));
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
        ASSERT_CUDA_OK(cuGraphCreate(&graph, 0));
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
            ASSERT_CUDA_OK(cuGraphAddKernelNode(&added, graph, nullptr, 0, &node));
        }
        CUgraphExec exec = nullptr;
        ASSERT_CUDA_OK(cuGraphInstantiate(&exec, graph, 0));
        ASSERT_CUDA_OK(run(exec));
        last.insert(read_ints(data, 1)[0]);
    }
    EXPECT_THAT(last, ElementsAre(1, 2, 3));
}

TEST_F(GraphTest, HandMadeNodesKeepTheirOrder) {
    CUdeviceptr data = ints(1);
    int count = 1;
    int value = 5;
    CUgraph graph = nullptr;
    ASSERT_CUDA_OK(cuGraphCreate(&graph, 0));
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
    ASSERT_CUDA_OK(cuGraphAddKernelNode(&first, graph, nullptr, 0, &node));
    ASSERT_CUDA_OK(cuGraphAddEmptyNode(&between, graph, &first, 1));
    node.func = kernel("add_one");
    node.kernelParams = add_parameters;
    ASSERT_CUDA_OK(cuGraphAddKernelNode(&last, graph, &between, 1, &node));
    CUgraph other = nullptr;
    ASSERT_CUDA_OK(cuGraphCreate(&other, 0));
    CUgraphNode stray = nullptr;
    EXPECT_EQ(cuGraphAddEmptyNode(&stray, other, &first, 1), CUDA_ERROR_INVALID_VALUE);
    expect_misuse({"bad-value"});
    CUgraphExec exec = nullptr;
    ASSERT_CUDA_OK(cuGraphInstantiate(&exec, graph, 0));
    ASSERT_CUDA_OK(run(exec));
    EXPECT_THAT(read_ints(data, 1), ElementsAre(6));
}

TEST_F(GraphTest, HandMadeCopiesFillsAndHostFunctionsRun) {
    const CUdeviceptr data = ints(4);
    const auto pinned_ints = reinterpret_cast<int*>(pinned(4 * sizeof(int)));
    CUgraph graph = nullptr;
    ASSERT_CUDA_OK(cuGraphCreate(&graph, 0));
    CUDA_MEMSET_NODE_PARAMS filling{};
    filling.dst = data;
    filling.value = 7;
    filling.elementSize = sizeof(int);
    filling.width = 4;
    filling.height = 1;
    CUgraphNode filled = nullptr;
    ASSERT_CUDA_OK(cuGraphAddMemsetNode(&filled, graph, nullptr, 0, &filling, context_));
    CUDA_MEMCPY3D copying{};
    copying.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copying.srcDevice = data;
    copying.dstMemoryType = CU_MEMORYTYPE_HOST;
    copying.dstHost = pinned_ints;
    copying.WidthInBytes = 4 * sizeof(int);
    copying.Height = copying.Depth = 1;
    CUgraphNode copied = nullptr;
    ASSERT_CUDA_OK(cuGraphAddMemcpyNode(&copied, graph, &filled, 1, &copying, context_));
    CUDA_HOST_NODE_PARAMS calling{};
    calling.fn = [](void* number) { *static_cast<int*>(number) += 1; };
    calling.userData = pinned_ints;
    CUgraphNode called = nullptr;
    ASSERT_CUDA_OK(cuGraphAddHostNode(&called, graph, &copied, 1, &calling));
    CUgraphExec exec = nullptr;
    ASSERT_CUDA_OK(cuGraphInstantiate(&exec, graph, 0));
    ASSERT_CUDA_OK(run(exec));
    EXPECT_EQ(pinned_ints[0], 8);
    EXPECT_EQ(pinned_ints[3], 7);
}

TEST_F(GraphTest, NamesItsMemoryWhileItIsInstantiated) {
    Mapping mapping;
    EXPECT_EQ(frostline_emulator_captured(mapping.address), 0);
    const CUgraphExec exec = capture([&] { EXPECT_CUDA_OK(fill(mapping.address, 1, 4, stream_)); });
    EXPECT_EQ(frostline_emulator_captured(mapping.address + mapping.bytes - 1), 1);
    EXPECT_EQ(frostline_emulator_captured(mapping.address + mapping.bytes), 0);
    ASSERT_CUDA_OK(cuGraphExecDestroy(exec));
    EXPECT_EQ(frostline_emulator_captured(mapping.address), 0);
}

// C01: memory that a graph names is taken away and the graph replays.
TEST_F(GraphTest, C01ReplayOnUnmappedMemoryIsAnIllegalAccess) {
    Mapping mapping;
    const CUgraphExec exec = capture([&] { EXPECT_CUDA_OK(fill(mapping.address, 1, 4, stream_)); });
    ASSERT_CUDA_OK(run(exec));
    mapping.unmap();
    EXPECT_EQ(run(exec), CUDA_ERROR_ILLEGAL_ADDRESS);
    expect_misuse({"unmapped-access"});
}

TEST_F(GraphTest, UnmappingUnderAReplayIsReported) {
    Mapping mapping;
    const CUgraphExec exec = capture([&] { EXPECT_CUDA_OK(fill(mapping.address, 1, 4, stream_)); });
    under_work(
        stream_, [&] { EXPECT_CUDA_OK(cuGraphLaunch(exec, stream_)); }, [&] { mapping.unmap(); });
    expect_misuse({"unmap-under-work"});
}

TEST_F(GraphTest, AGraphUnderCaptureIsNobodyElses) {
    CUgraph graph = nullptr;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    ASSERT_CUDA_OK(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ASSERT_CUDA_OK(
        cuStreamGetCaptureInfo(stream_, &status, nullptr, &graph, nullptr, nullptr, nullptr));
    CUgraphExec exec = nullptr;
    EXPECT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
    ASSERT_CUDA_OK(cuStreamEndCapture(stream_, &graph));
    EXPECT_CUDA_OK(cuGraphInstantiate(&exec, graph, 0));
}

TEST_F(GraphTest, CanBeCapturedIntoAnother) {
    const CUdeviceptr data = ints(1);
    const CUgraphExec inner = capture([&] { EXPECT_CUDA_OK(add_one(data, 1, stream_)); });
    const CUgraphExec outer = capture([&] {
        EXPECT_CUDA_OK(cuGraphLaunch(inner, stream_));
        EXPECT_CUDA_OK(cuGraphLaunch(inner, stream_));
    });
    ASSERT_CUDA_OK(run(outer));
    EXPECT_THAT(read_ints(data, 1), ElementsAre(2));
}

TEST_F(GraphTest, LeaksAreReported) {
    start("");
    stream_ = stream();
    capture([] {});
    frostline_emulator_restart("");
    EXPECT_THAT(reported_names(), ::testing::Contains("leak-at-exit"));
    frostline_emulator_clear_misuse();
}

}  // namespace
}  // namespace frostline::emulator_test
