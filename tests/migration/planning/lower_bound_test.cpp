// The lower bound is below what every schedule takes, and on small traces that are easy to see
// through it is exactly that.
#include "migration/planning/lower_bound.h"

#include "migration/planning/bound_prices.h"
#include "migration/planning/tensor_versions.h"
#include "migration/planning/trace_builder.h"
#include "tests/migration/planning/step_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

namespace frostline {
namespace {

constexpr std::uint64_t kUnit = 1'000'000;  // bytes
constexpr std::uint64_t kTick = 1'000'000;  // ns, in which one unit crosses a link
constexpr double kRate = 1e9;               // bytes per second

/// A device with `room` units above enough DRAM.
Machine machine_with(std::uint64_t room_units) {
    Machine machine;
    machine.tiers = {{"gpu", room_units * kUnit}, {"dram", 1000 * kUnit}};
    machine.resources = {{"in", kRate}, {"out", kRate}};
    machine.links = {{.from = 0, .to = 1, .resources = {1}, .latency_ns = 0},
                     {.from = 1, .to = 0, .resources = {0}, .latency_ns = 0}};
    return machine;
}

/// The trace with sizes and times in the units above; tensors have `units` or one each.
Trace trace_of(const TinyTrace& tiny, const std::vector<std::uint64_t>& units = {}) {
    TraceBuilder builder;
    for (std::size_t i = 0; i < tiny.is_weight.size(); ++i) {
        const std::uint64_t size = units.empty() ? 1 : units[i];
        EXPECT_TRUE(
            builder.add_tensor(i, size * kUnit, tiny.is_weight[i] ? "weight" : "activation"));
    }
    for (const TinyKernel& each : tiny.kernels) {
        const std::vector<TensorIndex> reads(each.reads.begin(), each.reads.end());
        const std::vector<TensorIndex> writes(each.writes.begin(), each.writes.end());
        EXPECT_TRUE(
            builder.add_kernel(static_cast<std::uint64_t>(each.ticks) * kTick, "k", reads, writes));
    }
    auto trace = builder.finish();
    EXPECT_TRUE(trace);
    return std::move(*trace);
}

double ticks(double ns) {
    return ns / static_cast<double>(kTick);
}

LowerBound bound_of(const Trace& trace, const Machine& machine) {
    auto bound = lower_bound(trace, machine);
    EXPECT_TRUE(bound);
    return *bound;
}

TinyTrace random_trace(std::mt19937& random) {
    const auto below = [&](int limit) {
        return static_cast<int>(random() % static_cast<std::uint32_t>(limit));
    };
    TinyTrace trace;
    const int tensors = 3 + below(3);
    for (int i = 0; i < tensors; ++i) trace.is_weight.push_back(below(3) == 0);
    const int kernels = 2 + below(4);
    for (int i = 0; i < kernels; ++i) {
        TinyKernel kernel{.ticks = 1 + below(2), .reads = {}, .writes = {}};
        kernel.reads.push_back(below(tensors));
        const int written = below(tensors);
        if (written != kernel.reads[0] && below(3) != 0) kernel.writes.push_back(written);
        trace.kernels.push_back(kernel);
    }
    return trace;
}

TEST(LowerBoundTest, NoScheduleOfARandomTraceIsFaster) {
    std::mt19937 random(7);
    int slowed = 0;
    int exact = 0;
    for (int round = 0; round < 150; ++round) {
        const TinyTrace tiny = random_trace(random);
        const Trace trace = trace_of(tiny);
        for (int room = 2; room <= 3; ++room) {
            const auto found = StepSearch(tiny, room).ticks(200);
            ASSERT_TRUE(found);
            const LowerBound bound =
                bound_of(trace, machine_with(static_cast<std::uint64_t>(room)));
            EXPECT_TRUE(bound.feasible);
            EXPECT_LE(ticks(bound.step_ns), *found / 4.0 + 1e-9) << "round " << round << "\n"
                                                                 << to_text(trace);
            EXPECT_GE(bound.step_ns, bound.compute_ns);
            EXPECT_GE(bound.repeating_step_ns, bound.step_ns);
            if (*found > 4 * std::lround(ticks(bound.compute_ns))) ++slowed;
            if (ticks(bound.step_ns) > *found / 4.0 - 1e-3) ++exact;
        }
    }
    // Were the bound no more than the kernels' time, the test would prove little.
    EXPECT_GE(slowed, 20);
    RecordProperty("slowed", slowed);
    RecordProperty("exact", exact);
    EXPECT_GE(exact, 300 - slowed);
}

/// Runs of phases in which one direction is charged, or none; room charged at a few points.
CutPrices random_prices(std::mt19937& random, std::uint32_t points, double per_byte) {
    CutPrices prices(points);
    std::uint32_t charged = random() % 3;
    for (std::uint32_t phase = 0; phase < points; ++phase) {
        if (random() % 3 == 0) charged = random() % 3;
        if (charged == 1) prices.in[phase] = per_byte;
        if (charged == 2) prices.out[phase] = per_byte;
        if (random() % 4 == 0) prices.room[phase] = per_byte;
    }
    return prices;
}

TEST(LowerBoundTest, NoPricesProveMoreThanASchedule) {
    std::mt19937 random(13);
    constexpr double kPerByte = 1;  // ns
    for (int round = 0; round < 40; ++round) {
        const TinyTrace tiny = random_trace(random);
        const Trace trace = trace_of(tiny);
        const TensorVersions versions = tensor_versions(trace);
        const auto found = StepSearch(tiny, 2).ticks(200);
        ASSERT_TRUE(found);
        CutPricing pricing(versions, {2 * kUnit, 1 / kPerByte, 1 / kPerByte});
        double most = 0;
        for (int tries = 0; tries < 3000; ++tries) {
            const CutPrices prices = random_prices(random, versions.points, kPerByte);
            double sum_ns = pricing.value(prices).judged_ns;
            for (KernelIndex kernel = 0; kernel < trace.kernels().size(); ++kernel) {
                const bool charged = prices.in[2 * kernel + 1] + prices.out[2 * kernel + 1] > 0;
                if (!charged) sum_ns += static_cast<double>(trace.kernels()[kernel].duration_ns);
            }
            most = std::max(most, sum_ns);
        }
        EXPECT_LE(ticks(most), *found / 4.0 + 1e-9) << "round " << round << "\n" << to_text(trace);
    }
}

TEST(LowerBoundTest, AnActivationThatMustLeaveAndComeBackTakesItsTimeTwice) {
    // While the second kernel runs there is room for nothing else.
    const TinyTrace tiny{.is_weight = {false, false},
                         .kernels = {{1, {}, {0}}, {1, {}, {1}}, {1, {0}, {}}}};
    const Trace trace = trace_of(tiny, {10, 10});
    const LowerBound bound = bound_of(trace, machine_with(10));
    EXPECT_NEAR(ticks(bound.step_ns), 3 + 10 + 10, 1e-3);
    ASSERT_EQ(bound.windows.size(), 2U);
    EXPECT_NEAR(ticks(bound.windows[0].traffic_ns), 10, 1e-3);
    // Of 15 units half of the activation may stay.
    EXPECT_NEAR(ticks(bound_of(trace, machine_with(15)).step_ns), 3 + 5 + 5, 1e-3);
    EXPECT_DOUBLE_EQ(ticks(bound_of(trace, machine_with(20)).step_ns), 3);
}

TEST(LowerBoundTest, TimeToComputeHidesTraffic) {
    const TinyTrace tiny{
        .is_weight = {false, false},
        .kernels = {{1, {}, {0}}, {8, {}, {}}, {1, {}, {1}}, {7, {}, {}}, {1, {0}, {}}}};
    const LowerBound bound = bound_of(trace_of(tiny, {10, 10}), machine_with(10));
    EXPECT_NEAR(ticks(bound.step_ns), 1 + 10 + 1 + 10 + 1, 1e-3);
}

TEST(LowerBoundTest, AWeightThatIsNeverWrittenLeavesForFree) {
    // The two never lie on the device together, and each comes back once in a step.
    const TinyTrace tiny{.is_weight = {true, true}, .kernels = {{1, {0}, {}}, {1, {1}, {}}}};
    const LowerBound bound = bound_of(trace_of(tiny, {10, 10}), machine_with(10));
    EXPECT_NEAR(ticks(bound.repeating_step_ns), 2 + 20, 1e-3);
    // Before the first judged step one of them can have come back already.
    EXPECT_NEAR(ticks(bound.step_ns), 2 + 17.5, 1e-3);
}

TEST(LowerBoundTest, OfTwoThatDoNotFitBesideAKernelOneCrosses) {
    // Beside kernel 1 there is room for the activation, which then does not leave before, or for
    // the weight, which then does not come back after. Of the ten units that cross, one does so
    // while the kernel runs.
    const TinyTrace tiny{
        .is_weight = {false, false, true},
        .kernels = {{1, {}, {0}}, {1, {}, {1}}, {1, {2}, {}}, {30, {}, {}}, {1, {0}, {}}}};
    const LowerBound bound = bound_of(trace_of(tiny, {10, 10, 10}), machine_with(20));
    EXPECT_NEAR(ticks(bound.step_ns), 34 + 9, 1e-3);
    ASSERT_EQ(bound.windows.size(), 1U);
    EXPECT_EQ(bound.windows[0].traffic, BoundTraffic::out_then_in);
    EXPECT_EQ(bound.windows[0].peak, 1U);
}

TEST(LowerBoundTest, MoreRoomOrSpeedNeverRaisesIt) {
    std::mt19937 random(11);
    for (int round = 0; round < 30; ++round) {
        const Trace trace = trace_of(random_trace(random));
        double before = 1e300;
        for (std::uint64_t room = 2; room <= 5; ++room) {
            const double now = bound_of(trace, machine_with(room)).step_ns;
            EXPECT_LE(now, before * (1 + 1e-9)) << to_text(trace);
            before = now;
        }
        before = 1e300;
        for (const double rate : {0.5e9, 1e9, 2e9, 8e9}) {
            Machine machine = machine_with(2);
            machine.resources[0].bytes_per_second = rate;
            machine.resources[1].bytes_per_second = rate;
            const double now = bound_of(trace, machine).step_ns;
            EXPECT_LE(now, before * (1 + 1e-9)) << to_text(trace);
            before = now;
        }
    }
}

TEST(LowerBoundTest, WhatDoesNotFitDramMustCrossTheSlowerLink) {
    const TinyTrace tiny{.is_weight = {false, false},
                         .kernels = {{1, {}, {0}}, {1, {}, {1}}, {1, {0}, {}}}};
    Machine machine = machine_with(10);
    machine.tiers[1].size_bytes = 4 * kUnit;
    machine.tiers.push_back({"ssd", 1000 * kUnit});
    machine.resources.push_back({"write", kRate / 10});
    machine.resources.push_back({"read", kRate / 10});
    machine.links.push_back({.from = 0, .to = 2, .resources = {1, 2}, .latency_ns = 0});
    machine.links.push_back({.from = 2, .to = 0, .resources = {0, 3}, .latency_ns = 0});
    // Ten units leave, six of them at a tenth of the speed.
    const LowerBound bound = bound_of(trace_of(tiny, {10, 10}), machine);
    EXPECT_NEAR(ticks(bound.step_ns), 3 + 60 + 60, 1e-3);
    EXPECT_EQ(bound.windows[0].room_bytes, 14 * kUnit);
}

TEST(LowerBoundTest, AKernelThatDoesNotFitIsNamed) {
    const TinyTrace tiny{.is_weight = {false, false},
                         .kernels = {{1, {}, {0}}, {1, {0}, {1}}, {1, {1}, {}}}};
    const LowerBound bound = bound_of(trace_of(tiny, {3, 5}), machine_with(7));
    EXPECT_FALSE(bound.feasible);
    EXPECT_TRUE(bound.device_is_short);
    EXPECT_EQ(bound.kernel, 1U);
    EXPECT_EQ(bound.missing_bytes, kUnit);
}

TEST(LowerBoundTest, WhatAllTiersTogetherDoNotHoldIsNamed) {
    const TinyTrace tiny{.is_weight = {false, false},
                         .kernels = {{1, {}, {0}}, {1, {}, {1}}, {1, {0, 1}, {}}}};
    Machine machine = machine_with(8);
    machine.tiers[1].size_bytes = 0;
    const LowerBound fits = bound_of(trace_of(tiny, {3, 5}), machine);
    EXPECT_TRUE(fits.feasible);
    const TinyTrace apart{.is_weight = {false, false, true},
                          .kernels = {{1, {}, {0}}, {1, {}, {1}}, {1, {0, 1}, {}}}};
    const LowerBound bound = bound_of(trace_of(apart, {3, 5, 2}), machine);
    EXPECT_FALSE(bound.feasible);
    EXPECT_FALSE(bound.device_is_short);
    EXPECT_EQ(bound.kernel, 1U);
    EXPECT_EQ(bound.missing_bytes, 2 * kUnit);
}

}  // namespace
}  // namespace frostline
