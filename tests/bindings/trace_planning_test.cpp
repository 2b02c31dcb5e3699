// What tiers hold over time, of a schedule so small that it can be told by hand.
#include "bindings/trace_planning.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

namespace frostline {
namespace {

// A step of 100 ns: the weight of 4 bytes is used in its second half, the other tensor, of 2, in
// its first.
PlanningProblem small_problem() {
    auto trace = parse_trace(
        "frostline-trace 1\n"
        "tensor 7 4 weight\n"
        "tensor 8 2 activation\n"
        "kernel 0 50 first - 8\n"
        "kernel 1 50 second 7 -\n",
        "trace");
    auto machine = parse_machine(
        R"({"device": "gpu",
            "tiers": [{"name": "gpu", "bytes": 6}, {"name": "dram", "bytes": 4}],
            "resources": {"in": 1e9},
            "links": [{"from": "dram", "to": "gpu", "resources": ["in"], "latency_ns": 0}]})",
        "machine");
    EXPECT_TRUE(trace && machine);
    return {*std::move(trace), *std::move(machine)};
}

// The weight comes within [30, 40) of each step, and its copy on the device goes at the end of it.
Schedule small_schedule() {
    Schedule schedule;
    schedule.init.push_back({{0, 0, 4}, 1});
    for (std::uint32_t step = 0; step < 3; ++step) {
        const std::uint64_t at_ns = std::uint64_t{100} * step;
        schedule.kernels.push_back({step, 0, at_ns});
        schedule.kernels.push_back({step, 1, at_ns + 50});
        schedule.moves.push_back({{0, 0, 4}, 1, 0, at_ns + 30, at_ns + 40});
        schedule.drops.push_back({{0, 0, 4}, 0, at_ns + 100});
    }
    return schedule;
}

TEST(TracePlanning, ColumnsShowTheMostThatATierHoldsInThem) {
    const PlanningProblem problem = small_problem();
    const auto held = occupancy_of(problem, small_schedule(), 100, 200, 10);
    ASSERT_TRUE(held.has_value());
    using Columns = std::vector<std::uint64_t>;
    EXPECT_EQ(held->at(0), (Columns{2, 2, 2, 6, 6, 4, 4, 4, 4, 4}));
    EXPECT_EQ(held->at(1), Columns(10, 4));
    // Two columns for all: neither shows less than what it held for a moment.
    const auto coarse = occupancy_of(problem, small_schedule(), 100, 200, 2);
    ASSERT_TRUE(coarse.has_value());
    EXPECT_EQ(coarse->at(0), (Columns{6, 4}));
}

TEST(TracePlanning, TheNamesArePlannedWithAndOthersAreNot) {
    const PlanningProblem problem = small_problem();
    const auto names = planning_names();
    EXPECT_EQ(names.back(), kPlannerName);
    EXPECT_EQ(std::count(names.begin(), names.end(), kPlannerName), 1);
    const auto none = plan_with(problem, "none", 0);
    ASSERT_FALSE(none.has_value());
    EXPECT_EQ(none.error().code(), Errc::invalid_argument);
}

TEST(TracePlanning, AnOtherSizeOfTheDeviceIsHeeded) {
    PlanningProblem problem = small_problem();
    const auto bound = bound_of(problem);
    ASSERT_TRUE(bound.has_value());
    EXPECT_TRUE(bound->feasible);
    problem.machine.tiers[0].size_bytes = 3;
    const auto none = plan_with(problem, kPlannerName, 0);
    ASSERT_FALSE(none.has_value());
    EXPECT_EQ(none.error().code(), Errc::no_space);
}

}  // namespace
}  // namespace frostline
