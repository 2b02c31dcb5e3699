// Each step is the same, two microseconds later, and uses the device's room to the last byte.
#include "tests/migration/planning/replay_scene.h"

#include "migration/planning/trace_builder.h"

#include <gtest/gtest.h>

#include <vector>

namespace frostline {

namespace {

using Scene = ReplayScene;

Trace make_trace() {
    TraceBuilder builder;
    const TensorIndex weight = builder.add_tensor(10, 400, "weight").value();
    const TensorIndex saved = builder.add_tensor(20, 400, "activation").value();
    const TensorIndex scratch = builder.add_tensor(30, 300, "workspace").value();
    const std::vector<TensorIndex> both{weight, saved};
    EXPECT_TRUE(builder.add_kernel(100, "forward", {&weight, 1}, {&saved, 1}).has_value());
    EXPECT_TRUE(builder.add_kernel(100, "middle", {}, {&scratch, 1}).has_value());
    EXPECT_TRUE(builder.add_kernel(100, "backward", both, {&weight, 1}).has_value());
    return builder.finish().value();
}

/// Buses carry 10 bytes/ns and swap 1 byte/ns, each way. What is in swap does not go to DRAM.
Machine make_machine() {
    constexpr ResourceIndex kOut = 0;
    constexpr ResourceIndex kIn = 1;
    constexpr ResourceIndex kSwapWrite = 2;
    constexpr ResourceIndex kSwapRead = 3;
    return {.name = "scene",
            .device = Scene::kGpu,
            .tiers = {{"gpu", 1000}, {"dram", 2000}, {"swap", 4000}},
            .resources = {{"out", 1e10}, {"in", 1e10}, {"swap_write", 1e9}, {"swap_read", 1e9}},
            .links = {{Scene::kGpu, Scene::kDram, {kOut}, 10},
                      {Scene::kDram, Scene::kGpu, {kIn}, 10},
                      {Scene::kGpu, Scene::kSwap, {kOut, kSwapWrite}, 20},
                      {Scene::kSwap, Scene::kGpu, {kIn, kSwapRead}, 20},
                      {Scene::kDram, Scene::kSwap, {kSwapWrite}, 0}}};
}

Schedule make_schedule() {
    Schedule schedule;
    const TensorRange weight{Scene::kWeight, 0, 400};
    const TensorRange quarter{Scene::kSaved, 300, 100};
    schedule.init.push_back({weight, Scene::kGpu});
    for (std::uint32_t step = 0; step < Scene::kSteps; ++step) {
        const std::uint64_t start = step * Scene::kPeriodNs;
        schedule.kernels.push_back({step, 0, start});
        schedule.kernels.push_back({step, 1, start + 120});
        schedule.kernels.push_back({step, 2, start + 240});
        schedule.moves.push_back({quarter, Scene::kGpu, Scene::kDram, start + 100, start + 120});
        schedule.moves.push_back({quarter, Scene::kDram, Scene::kGpu, start + 220, start + 240});
        schedule.moves.push_back({weight, Scene::kGpu, Scene::kSwap, start + 400, start + 820});
        schedule.moves.push_back({weight, Scene::kSwap, Scene::kGpu, start + 900, start + 1320});
        schedule.drops.push_back({quarter, Scene::kGpu, start + 120});
        schedule.drops.push_back({weight, Scene::kGpu, start + 900});
    }
    return schedule;
}

}  // namespace

ReplayScene::ReplayScene()
    : trace(make_trace()), machine(make_machine()), schedule(make_schedule()) {}

void ReplayScene::delay_last_step(std::uint64_t delay_ns) {
    constexpr std::uint64_t kStart = (kSteps - 1) * kPeriodNs;
    for (ScheduledKernel& each : schedule.kernels) {
        if (each.start_ns >= kStart) each.start_ns += delay_ns;
    }
    for (ScheduledMove& each : schedule.moves) {
        if (each.start_ns < kStart) continue;
        each.start_ns += delay_ns;
        each.end_ns += delay_ns;
    }
    for (ScheduledDrop& each : schedule.drops) {
        if (each.at_ns >= kStart) each.at_ns += delay_ns;
    }
}

}  // namespace frostline
