// Proves that memory pools keep what a graph may run on again, give everything back once they are
// released, and share the device's budget.
#include "tests/bindings/torch_fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>
#include <vector>

namespace frostline {
namespace {

constexpr std::uint64_t kMi = std::uint64_t{1} << 20;
constexpr TorchPoolId kPool{0, 1};
constexpr TorchPoolId kOther{0, 2};

bool always(CUstream /*stream*/) {
    return true;
}

bool is_captured(CUstream stream) {
    CUstreamCaptureStatus status{};
    EXPECT_EQ(FROSTLINE_EMULATED(cuStreamIsCapturing)(stream, &status), CUDA_SUCCESS);
    return status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

TEST(TorchPools, AFilterSaysWhoAllocatesFromThePool) {
    TorchMachine machine("memory=64MiB");
    CUstream in = machine.stream();
    CUstream out = machine.stream();
    ASSERT_TRUE(machine.device().begin_pool(kPool, [=](CUstream stream) { return stream == in; }));
    const CUdeviceptr pooled = machine.allocate(kMi, in);
    const CUdeviceptr plain = machine.allocate(kMi, out);
    ASSERT_TRUE(machine.device().end_pool(kPool));
    const CUdeviceptr after = machine.allocate(kMi, in);
    const auto living = machine.device().live();
    ASSERT_EQ(living.size(), 3U);
    for (const auto& block : living) EXPECT_EQ(block.pool[1] == 1, block.address == pooled);
    EXPECT_EQ(machine.device().statistics().pools, 1U);
    EXPECT_EQ(machine.device().statistics().allocations.current, 3U);
    for (const CUdeviceptr each : {pooled, plain, after}) machine.free(each, kMi);
    ASSERT_TRUE(machine.device().release_pool(kPool));
    machine.device().trim();
    EXPECT_EQ(machine.device().statistics().pools, 0U);
    EXPECT_EQ(machine.device().statistics().reserved_bytes.current, 0U);
}

TEST(TorchPools, WhatWasNotBegunIsRefusedAndAFailingFilterDoesNotHold) {
    TorchMachine machine("memory=64MiB");
    EXPECT_EQ(machine.device().end_pool(kPool).error().code(), Errc::not_found);
    EXPECT_EQ(machine.device().release_pool(kPool).error().code(), Errc::not_found);
    const auto fails = [](CUstream /*stream*/) -> bool { throw std::runtime_error("no answer"); };
    ASSERT_TRUE(machine.device().begin_pool(kPool, fails));
    machine.free(machine.allocate(kMi, nullptr), kMi);
    EXPECT_EQ(machine.device().statistics().pools, 0U);
    ASSERT_TRUE(machine.device().end_pool(kPool));
    ASSERT_TRUE(machine.device().release_pool(kPool));
    EXPECT_EQ(machine.device().release_pool(kPool).error().code(), Errc::not_found);
}

TEST(TorchPools, MemoryStaysUntilEveryUserReleasedItAndNothingLives) {
    TorchMachine machine("memory=64MiB");
    for (int i = 0; i < 2; ++i) {
        ASSERT_TRUE(machine.device().begin_pool(kPool, always));
        if (i == 0) machine.free(machine.allocate(4 * kMi, nullptr), 4 * kMi);
        ASSERT_TRUE(machine.device().end_pool(kPool));
    }
    const auto reserved = [&] {
        machine.device().trim();
        return machine.device().statistics().reserved_bytes.current;
    };
    EXPECT_EQ(reserved(), 4 * kMi);
    ASSERT_TRUE(machine.device().release_pool(kPool));
    EXPECT_EQ(reserved(), 4 * kMi) << "the second user's graph may run";
    ASSERT_TRUE(machine.device().begin_pool(kPool, always));
    const CUdeviceptr lives = machine.allocate(4 * kMi, nullptr);
    ASSERT_TRUE(machine.device().end_pool(kPool));
    ASSERT_TRUE(machine.device().release_pool(kPool));
    ASSERT_TRUE(machine.device().release_pool(kPool));
    EXPECT_EQ(reserved(), 4 * kMi) << "a tensor lives there";
    machine.free(lives, 4 * kMi);
    EXPECT_EQ(reserved(), 0U);
}

TEST(TorchPools, IdleMemoryMovesBetweenTheDevicesHeapsUnderOneBudget) {
    TorchMachine machine("memory=64MiB", "16MiB");
    machine.free(machine.allocate(14 * kMi, nullptr), 14 * kMi);
    ASSERT_TRUE(machine.device().begin_pool(kPool, always));
    const CUdeviceptr pooled = machine.allocate(10 * kMi, nullptr);
    EXPECT_EQ(machine.device().statistics().retries, 1U);
    EXPECT_EQ(machine.refused(8 * kMi, nullptr), Errc::no_space);
    ASSERT_TRUE(machine.device().end_pool(kPool));
    EXPECT_EQ(machine.refused(8 * kMi, nullptr), Errc::no_space);
    EXPECT_LE(machine.device().statistics().reserved_bytes.peak, 16 * kMi);
    machine.free(pooled, 10 * kMi);
    EXPECT_EQ(machine.refused(8 * kMi, nullptr), Errc::no_space) << "a graph may run there";
    const auto refused = machine.allocator().allocate(8 * kMi, 0, nullptr);
    EXPECT_THAT(refused.error().message(), testing::HasSubstr("10.00 by memory pools"));
    ASSERT_TRUE(machine.device().release_pool(kPool));
    machine.free(machine.allocate(14 * kMi, nullptr), 14 * kMi);
    EXPECT_EQ(machine.device().statistics().retries, 2U);
    EXPECT_EQ(machine.device().statistics().pools, 0U);
}

// A graph that is captured as PyTorch captures it, and runs again while its device is used on.
class CapturedGraph {
   public:
    CapturedGraph(TorchMachine& machine, TorchPoolId pool, CUstream stream)
        : machine_(machine), pool_(pool) {
        EXPECT_TRUE(machine.device().begin_pool(pool, is_captured));
        EXPECT_EQ(FROSTLINE_EMULATED(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_RELAXED),
                  CUDA_SUCCESS);
        // Each replay works in the memory of a tensor that was freed in the capture.
        const CUdeviceptr scratch = machine.allocate(5 * kMi, stream);
        Framework::fill(scratch, 5 * kMi, 5, stream);
        output_ = machine.allocate(3 * kMi, stream);
        EXPECT_EQ(FROSTLINE_EMULATED(cuMemcpyDtoDAsync)(output_, scratch, 3 * kMi, stream),
                  CUDA_SUCCESS);
        machine.free(scratch, 5 * kMi);
        CUgraph graph = nullptr;
        EXPECT_EQ(FROSTLINE_EMULATED(cuStreamEndCapture)(stream, &graph), CUDA_SUCCESS);
        EXPECT_TRUE(machine.device().end_pool(pool));
        EXPECT_EQ(FROSTLINE_EMULATED(cuGraphInstantiateWithFlags)(&exec_, graph, 0), CUDA_SUCCESS);
        EXPECT_EQ(FROSTLINE_EMULATED(cuGraphDestroy)(graph), CUDA_SUCCESS);
    }
    CapturedGraph(const CapturedGraph&) = delete;
    CapturedGraph& operator=(const CapturedGraph&) = delete;
    ~CapturedGraph() {
        EXPECT_EQ(FROSTLINE_EMULATED(cuGraphExecDestroy)(exec_), CUDA_SUCCESS);
        machine_.free(output_, 3 * kMi);
        EXPECT_TRUE(machine_.device().release_pool(pool_));
    }

    void launch(CUstream stream) const {
        EXPECT_EQ(FROSTLINE_EMULATED(cuGraphLaunch)(exec_, stream), CUDA_SUCCESS);
    }
    bool output_holds(unsigned char value, CUstream stream) const {
        return Framework::holds(output_, 3 * kMi, value, stream);
    }
    CUdeviceptr output() const { return output_; }

   private:
    TorchMachine& machine_;
    TorchPoolId pool_;
    CUgraphExec exec_ = nullptr;
    CUdeviceptr output_ = 0;
};

TEST(TorchPools, AGraphRunsAgainOnItsMemoryWhateverElseHappens) {
    TorchMachine machine("memory=64MiB,jitter_us=200", "32MiB");
    CUstream captured = machine.stream();
    CUstream replays = machine.stream();
    {
        const CapturedGraph graph(machine, kPool, captured);
        const CapturedGraph other(machine, kOther, captured);
        EXPECT_NE(graph.output(), other.output());
        for (int round = 0; round < 4; ++round) {
            Framework::fill(graph.output(), 3 * kMi, 1, replays);
            graph.launch(replays);
            const CUdeviceptr between = machine.allocate(12 * kMi, captured);
            Framework::fill(between, 12 * kMi, 2, captured);
            machine.free(between, 12 * kMi);
            machine.device().trim();
            other.launch(replays);
            EXPECT_TRUE(graph.output_holds(5, replays));
            EXPECT_TRUE(other.output_holds(5, replays));
        }
    }
    machine.device().trim();
    EXPECT_EQ(machine.device().statistics().reserved_bytes.current, 0U);
}

TEST(TorchPools, APoolsOtherUsersDoNotMoveTheMemoryOfAGraph) {
    TorchMachine machine("memory=64MiB", "32MiB");
    CUstream captured = machine.stream();
    {
        const CapturedGraph graph(machine, kPool, captured);
        ASSERT_TRUE(machine.device().begin_pool(kPool, always));
        std::vector<CUdeviceptr> small;
        for (int i = 0; i < 40; ++i) small.push_back(machine.allocate(kMi / 8, captured));
        const CUdeviceptr large = machine.allocate(8 * kMi, captured);
        ASSERT_TRUE(machine.device().end_pool(kPool));
        graph.launch(captured);
        EXPECT_TRUE(graph.output_holds(5, captured));
        machine.free(large, 8 * kMi);
        for (const CUdeviceptr each : small) machine.free(each, kMi / 8);
        ASSERT_TRUE(machine.device().release_pool(kPool));
    }
    machine.device().trim();
    EXPECT_EQ(machine.device().statistics().reserved_bytes.current, 0U);
}

TEST(TorchPools, AReplayThatStillRunsKeepsAReleasedPoolsMemory) {
    TorchMachine machine("memory=64MiB", "24MiB");
    CUstream captured = machine.stream();
    CUstream replays = machine.stream();
    std::optional<StreamGate> gate;
    {
        const CapturedGraph graph(machine, kPool, captured);
        gate.emplace(replays);
        graph.launch(replays);
    }
    std::thread opener([&] { gate->open(); });
    machine.device().trim();  // waits for the replay
    opener.join();
    EXPECT_TRUE(Framework::is_idle(replays));
    EXPECT_EQ(machine.device().statistics().reserved_bytes.current, 0U);
}

TEST(TorchPools, WhileAStreamIsCapturedOthersAllocateFreeAndTrim) {
    TorchMachine machine("memory=64MiB", "32MiB");
    CUstream captured = machine.stream();
    CUstream other = machine.stream();
    const CUdeviceptr before = machine.allocate(2 * kMi, captured);
    ASSERT_TRUE(machine.device().begin_pool(kPool, is_captured));
    ASSERT_EQ(FROSTLINE_EMULATED(cuStreamBeginCapture)(captured, CU_STREAM_CAPTURE_MODE_GLOBAL),
              CUDA_SUCCESS);
    const CUdeviceptr inside = machine.allocate(kMi, captured);
    Framework::fill(inside, kMi, 3, captured);
    ASSERT_TRUE(machine.device().record_stream(reinterpret_cast<void*>(inside), other));
    machine.free(inside, kMi);
    machine.free(before, 2 * kMi);
    machine.free(machine.allocate(4 * kMi, other), 4 * kMi);
    machine.device().trim();
    CUgraph graph = nullptr;
    ASSERT_EQ(FROSTLINE_EMULATED(cuStreamEndCapture)(captured, &graph), CUDA_SUCCESS)
        << "something that is illegal in a capture was called";
    ASSERT_TRUE(machine.device().end_pool(kPool));
    EXPECT_EQ(FROSTLINE_EMULATED(cuGraphDestroy)(graph), CUDA_SUCCESS);
    ASSERT_TRUE(machine.device().release_pool(kPool));
    machine.device().trim();
    EXPECT_EQ(machine.device().statistics().allocations.current, 0U);
}

}  // namespace
}  // namespace frostline
