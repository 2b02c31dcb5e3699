// A replay takes time in proportion to what is in the schedule, whatever ranges it cuts.
#include "migration/planning/replay.h"
#include "migration/planning/trace_builder.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>

namespace frostline {
namespace {

constexpr TierIndex kGpu = 0;
constexpr TierIndex kDram = 1;

Machine make_machine(std::uint64_t gpu_bytes) {
    return {.name = "two tiers",
            .device = kGpu,
            .tiers = {{"gpu", gpu_bytes}, {"dram", std::uint64_t{1} << 40}},
            .resources = {{"out", 1e10}, {"in", 1e10}},
            .links = {{kGpu, kDram, {0}, 0}, {kDram, kGpu, {1}, 0}}};
}

/// Legal, or the test fails. Prints how long the replay took.
void replay_legally(const char* what, const Trace& trace, const Machine& machine,
                    const Schedule& schedule) {
    const auto start = std::chrono::steady_clock::now();
    const auto verdict = replay(trace, machine, schedule);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    ASSERT_TRUE(verdict.has_value()) << verdict.error().message();
    EXPECT_TRUE(verdict->legal) << verdict->why;
    std::printf("%s: %zu kernels, %zu moves, %zu drops replayed in %.3f s\n", what,
                schedule.kernels.size(), schedule.moves.size(), schedule.drops.size(),
                seconds.count());
}

TEST(ReplayScale, ALongTrainingStep) {
    constexpr std::uint32_t kLayers = 100000;
    constexpr std::uint32_t kSteps = 5;
    constexpr std::uint64_t kBytes = 1000;
    constexpr std::uint64_t kKernelNs = 200;
    constexpr std::uint32_t kEvery = 10;  // layers whose activation leaves for the backward pass
    TraceBuilder builder;
    std::vector<TensorIndex> weights;
    std::vector<TensorIndex> saved;
    for (std::uint32_t i = 0; i < kLayers; ++i) {
        weights.push_back(builder.add_tensor(2 * i, 10, "weight").value());
        saved.push_back(builder.add_tensor(2 * i + 1, kBytes, "activation").value());
    }
    for (std::uint32_t i = 0; i < kLayers; ++i) {
        const std::array reads{weights[i], saved[i == 0 ? 0 : i - 1]};
        ASSERT_TRUE(builder.add_kernel(kKernelNs, "forward", reads, {&saved[i], 1}).has_value());
    }
    for (std::uint32_t i = kLayers; i-- > 0;) {
        const std::array reads{weights[i], saved[i]};
        ASSERT_TRUE(builder.add_kernel(kKernelNs, "backward", reads, {&weights[i], 1}).has_value());
    }
    const Trace trace = builder.finish().value();
    Schedule schedule;
    for (const TensorIndex each : weights) schedule.init.push_back({{each, 0, 10}, kGpu});
    constexpr std::uint32_t kKernels = 2 * kLayers;
    for (std::uint32_t step = 0; step < kSteps; ++step) {
        const std::uint64_t step_ns = std::uint64_t{step} * kKernels * kKernelNs;
        for (std::uint32_t i = 0; i < kKernels; ++i) {
            schedule.kernels.push_back({step, i, step_ns + i * kKernelNs});
        }
        for (std::uint32_t i = 0; i + 1 < kLayers; i += kEvery) {
            // It is read once more by the next layer, and is back one kernel before its own.
            const std::uint64_t out_ns = step_ns + (i + 2) * kKernelNs;
            const std::uint64_t back_ns = step_ns + (kKernels - 1 - i) * kKernelNs - 100;
            if (back_ns < out_ns + 100) continue;
            const TensorRange range{saved[i], 0, kBytes};
            schedule.moves.push_back({range, kGpu, kDram, out_ns, out_ns + 100});
            schedule.drops.push_back({range, kGpu, out_ns + 100});
            schedule.moves.push_back({range, kDram, kGpu, back_ns, back_ns + 100});
        }
    }
    replay_legally("a long step", trace, make_machine(kLayers * (kBytes + 10)), schedule);
}

TEST(ReplayScale, OneTensorCutIntoManyRanges) {
    constexpr std::uint64_t kPieces = 100000;
    TraceBuilder builder;
    const TensorIndex weight = builder.add_tensor(0, 2 * kPieces, "weight").value();
    const TensorIndex other = builder.add_tensor(1, 1, "activation").value();
    ASSERT_TRUE(builder.add_kernel(1, "kernel", {}, {&other, 1}).has_value());
    const Trace trace = builder.finish().value();
    Schedule schedule;
    const TensorRange whole{weight, 0, 2 * kPieces};
    schedule.init.push_back({whole, kGpu});
    for (std::uint32_t step = 0; step < 3; ++step) schedule.kernels.push_back({step, 0, step});
    // Every second byte first, so that as many ranges as that lie in DRAM, and then the others.
    std::uint64_t now_ns = 0;
    for (std::uint64_t first : {0, 1}) {
        for (std::uint64_t i = first; i < 2 * kPieces; i += 2, ++now_ns) {
            schedule.moves.push_back({{weight, i, 1}, kGpu, kDram, now_ns, now_ns + 1});
        }
    }
    // Then all of it, to and fro.
    for (std::uint64_t i = 0; i < kPieces; ++i) {
        schedule.drops.push_back({whole, kGpu, now_ns});
        schedule.moves.push_back({whole, kDram, kGpu, now_ns, now_ns + kPieces});
        now_ns += kPieces;
    }
    replay_legally("one tensor in pieces", trace, make_machine(4 * kPieces), schedule);
}

}  // namespace
}  // namespace frostline
