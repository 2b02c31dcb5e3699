// Steps on which a planner once erred, as small as they could be made.
#include "migration/planning/planner.h"
#include "migration/planning/replay.h"
#include "migration/planning/trace_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace frostline {
namespace {

constexpr std::uint64_t kKib = 1024;

Trace trace_of(std::string_view text) {
    auto trace = parse_trace(text, "test");
    EXPECT_TRUE(trace.has_value());
    return *std::move(trace);
}

/// A device above two tiers; every link loads one resource of 1 GB/s for its direction.
Machine machine_of(std::uint64_t device_bytes, std::uint64_t near_bytes, std::uint64_t far_bytes) {
    Machine machine;
    machine.tiers = {{"gpu", device_bytes}, {"near", near_bytes}, {"far", far_bytes}};
    machine.resources = {{"out", 1e9}, {"in", 1e9}};
    machine.links = {{0, 1, {0}, 0}, {1, 0, {1}, 0}, {0, 2, {0}, 0}, {2, 0, {1}, 0}};
    return machine;
}

void expect_legal(const Trace& trace, const Machine& machine) {
    const auto plan = plan_schedule(trace, machine, {});
    ASSERT_TRUE(plan.has_value()) << plan.error().message();
    const auto verdict = replay(trace, machine, plan->schedule);
    ASSERT_TRUE(verdict.has_value());
    EXPECT_TRUE(verdict->legal) << verdict->why;
}

// At one instant copies start before kernels do: room below of what the kernel makes void is not
// yet free for them.
TEST(PlannerFaults, RoomOfVoidCopiesIsNotUsedAtTheInstantOfTheWrite) {
    const Trace trace = trace_of(
        "frostline-trace 1\n"
        "tensor 0 559506 activation\ntensor 1 780356 activation\ntensor 2 359784 activation\n"
        "tensor 3 1 weight\ntensor 4 920213 weight\ntensor 5 195090 weight\n"
        "kernel 0 2 k 1 -\nkernel 1 200 k 1,0,5 0\nkernel 2 36 k 3,5 1\nkernel 3 171 k 5,3 3\n"
        "kernel 4 169 k 5 2\nkernel 5 158 k 0,3 1\nkernel 6 9 k 4 2\nkernel 7 11 k - 0,5\n"
        "kernel 8 28 k - 0\nkernel 9 139 k - -\n");
    Machine machine = machine_of(1534953, 2181056, 2748332);
    machine.resources = {{"bus", 1e9}};
    machine.links = {{0, 1, {0}, 0}, {1, 0, {0}, 0}, {0, 2, {0}, 0}, {2, 0, {0}, 20}};
    expect_legal(trace, machine);
}

// Three weights, of which the device holds one and each tier below another.
TEST(PlannerFaults, WeightsLieAtFirstWhereTiersHaveRoom) {
    const Trace trace = trace_of(
        "frostline-trace 1\n"
        "tensor 0 1000 weight\ntensor 1 1000 weight\ntensor 2 1000 weight\n"
        "kernel 0 100 k 0 -\nkernel 1 100 k 1 -\nkernel 2 100 k 2 -\n");
    expect_legal(trace, machine_of(1500, 1000, 1500));
    expect_legal(trace, machine_of(1500, 3000, 1));
    expect_legal(trace, machine_of(1000, 1500, 1500));
}

// What the step before leaves below is more than the tier has room for beside the rest.
TEST(PlannerFaults, WeightsBelowAtFirstDoNotOverfillATier) {
    const Trace trace = trace_of(
        "frostline-trace 1\n"
        "tensor 0 434655 weight\ntensor 1 253455 activation\ntensor 2 341025 weight\n"
        "tensor 3 804937 activation\ntensor 4 898063 weight\ntensor 5 1 activation\n"
        "tensor 6 732484 weight\ntensor 7 74217 activation\ntensor 8 74509 workspace\n"
        "tensor 9 922294 workspace\ntensor 10 1 workspace\ntensor 11 619716 workspace\n"
        "kernel 0 120 forward 0,1 3\nkernel 1 161 forward 2,3 5\nkernel 2 185 forward 4,5 7\n"
        "kernel 3 200 backward 6,7,5,8 9\nkernel 4 141 backward 4,5,3,9 10\n"
        "kernel 5 194 backward 2,3,1,10 11\n");
    Machine machine;
    machine.tiers = {{"gpu", 2625297}, {"below", 2335696}};
    machine.resources = {{"bus", 1e6}};
    machine.links = {{0, 1, {0}, 20000}, {1, 0, {0}, 20}};
    expect_legal(trace, machine);
}

TEST(PlannerFaults, WeightsThatNowhereHaveRoomAreRefused) {
    const Trace trace = trace_of(
        "frostline-trace 1\n"
        "tensor 0 1000 weight\ntensor 1 1000 weight\n"
        "kernel 0 100 k 0 -\nkernel 1 100 k 1 -\n");
    const auto plan = plan_schedule(trace, machine_of(1500, 300, 100), {});
    ASSERT_FALSE(plan.has_value());
    EXPECT_EQ(plan.error().code(), Errc::no_space);
    EXPECT_THAT(plan.error().message(), testing::HasSubstr("100 bytes"));
}

// Copies that wait for a resource leave each other room on it; with four of them, nobody started.
TEST(PlannerFaults, ManyLinksOfOneResourceDoNotWaitForEachOther) {
    const Trace trace = trace_of(
        "frostline-trace 1\n"
        "tensor 0 295931 activation\ntensor 1 658929 activation\ntensor 2 428450 activation\n"
        "tensor 3 357284 activation\ntensor 4 959815 activation\n"
        "kernel 0 200 k 0,1 0\nkernel 1 138 k 3,0 0,1\nkernel 2 50 k 1,3 4\nkernel 3 187 k - 0,1\n"
        "kernel 4 153 k 2 -\nkernel 5 5 k 1 2\nkernel 6 29 k 4,0 3\nkernel 7 105 k 4 1\n"
        "kernel 8 47 k 4,1 3,0\n");
    Machine machine;
    machine.tiers = {{"gpu", 2468064}, {"a", 337551}, {"b", 337551}, {"c", 2700409}};
    machine.resources = {{"x", 3.7e9}, {"y", 1e9}, {"z", 1e9}};
    machine.links = {{0, 1, {1, 2}, 0}, {0, 2, {0, 2}, 0}, {0, 3, {1}, 0},
                     {1, 0, {1}, 0},    {2, 0, {1}, 0},    {3, 0, {0, 2}, 1'000'000'000}};
    expect_legal(trace, machine);
}

TEST(PlannerFaults, NothingThatIsUsedTakesNothing) {
    const Trace trace = trace_of("frostline-trace 1\nkernel 0 100 k - -\n");
    expect_legal(trace, machine_of(kKib, kKib, kKib));
    Machine alone;
    alone.tiers = {{"gpu", 1}};
    expect_legal(trace, alone);
}

}  // namespace
}  // namespace frostline
