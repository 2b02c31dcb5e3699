// Whatever step and machine it is given, the planner gives a schedule that a replay calls legal or
// says in words why there is none; and the same again when it is asked again.
#include "migration/planning/lower_bound.h"
#include "migration/planning/planner.h"
#include "migration/planning/replay.h"
#include "tests/migration/planning/random_step.h"
#include "tests/tiers/seed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <string>

namespace frostline {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kSteps = 8;
// So many moves for each use and tier, and each part of the device that a copy has at most, are far
// more than any plan makes: whoever makes more goes round in circles.
constexpr std::uint64_t kMostMovesForEach = 4096;

std::uint64_t uses_of(const Trace& trace) {
    std::uint64_t uses = 0;
    for (const TraceKernel& each : trace.kernels()) uses += each.reads + each.writes;
    return uses;
}

void expect_good(const RandomStep& step, const Plan& plan) {
    const auto verdict = replay(step.trace, step.machine, plan.schedule);
    ASSERT_TRUE(verdict.has_value());
    ASSERT_TRUE(verdict->legal) << verdict->why;
    EXPECT_EQ(verdict->steps, PlannerOptions().steps);
    EXPECT_DOUBLE_EQ(verdict->step_ns, plan.step_ns);
    EXPECT_DOUBLE_EQ(verdict->slowdown, plan.slowdown);
    EXPECT_GE(plan.plans_tried, 1U);
    EXPECT_LE(plan.schedule.moves.size(),
              kMostMovesForEach * (uses_of(step.trace) + 1) * step.machine.tiers.size());
    const auto bound = lower_bound(step.trace, step.machine);
    ASSERT_TRUE(bound.has_value());
    EXPECT_TRUE(bound->feasible);
    EXPECT_GE(plan.step_ns, bound->step_ns * (1 - 1e-9));
}

void expect_refusal(const RandomStep& step, const Error& error) {
    const std::uint64_t device_bytes = step.machine.tiers[step.machine.device].size_bytes;
    const KernelNeed need = largest_need(step.trace);
    EXPECT_EQ(error.code(), Errc::no_space) << error.message();
    EXPECT_FALSE(is_surely_feasible(step)) << error.message();
    if (need.bytes <= device_bytes) return;
    EXPECT_THAT(error.message(), HasSubstr("bytes are missing"));
}

class PlannerOnRandomSteps : public testing::TestWithParam<int> {};

TEST_P(PlannerOnRandomSteps, IsLegalOrSaysWhyNot) {
    std::uint64_t planned = 0;
    for (std::uint64_t i = 0; i < kSteps && !HasFailure(); ++i) {
        const std::uint64_t stream = static_cast<std::uint64_t>(GetParam()) * kSteps + i;
        SCOPED_TRACE("random_stream(" + std::to_string(stream) + ")");
        auto random = random_stream(stream);
        const RandomStep step = make_random_step(random);
        const auto plan = plan_schedule(step.trace, step.machine, {});
        if (!plan) {
            expect_refusal(step, plan.error());
            continue;
        }
        ++planned;
        expect_good(step, *plan);
        if (i % 8 != 0) continue;
        const auto again = plan_schedule(step.trace, step.machine, {});
        ASSERT_TRUE(again.has_value());
        EXPECT_EQ(again->schedule, plan->schedule) << "the same step was planned differently";
    }
    std::printf("%llu of %llu random steps have a schedule\n",
                static_cast<unsigned long long>(planned), static_cast<unsigned long long>(kSteps));
}

INSTANTIATE_TEST_SUITE_P(Streams, PlannerOnRandomSteps, testing::Range(1, 21));

TEST(PlannerRefusal, NamesTheKernelAndTheMissingBytes) {
    auto random = random_stream(8);
    for (int i = 0; i < 200; ++i) {
        RandomStep step = make_random_step(random);
        const KernelNeed need = largest_need(step.trace);
        if (need.bytes < 2) continue;
        const std::uint64_t missing = between(random, 1, need.bytes - 1);
        step.machine.tiers[step.machine.device].size_bytes = need.bytes - missing;
        const auto plan = plan_schedule(step.trace, step.machine, {});
        ASSERT_FALSE(plan.has_value());
        EXPECT_EQ(plan.error().code(), Errc::no_space);
        // The first kernel that does not fit is named, which need not be the hungriest.
        EXPECT_THAT(plan.error().message(), testing::ContainsRegex("^kernel [0-9]+ \\("));
        EXPECT_THAT(plan.error().message(), testing::ContainsRegex("[0-9]+ bytes are missing$"));
    }
}

TEST(PlannerRefusal, WantsThreeSteps) {
    auto random = random_stream(9);
    const RandomStep step = make_random_step(random);
    const auto plan = plan_schedule(step.trace, step.machine, {.steps = 2, .now_ns = {}});
    ASSERT_FALSE(plan.has_value());
    EXPECT_EQ(plan.error().code(), Errc::invalid_argument);
}

TEST(PlannerTimeLimit, ThatIsOverAtOnceLeavesTheFirstPlan) {
    auto random = random_stream(10);
    std::uint64_t planned = 0;
    for (int i = 0; i < 100; ++i) {
        const RandomStep step = make_random_step(random);
        if (!is_surely_feasible(step)) continue;
        std::uint64_t now_ns = 0;
        const auto plan =
            plan_schedule(step.trace, step.machine,
                          {.time_limit_ns = 1, .now_ns = [&now_ns] { return now_ns += 1000; }});
        ASSERT_TRUE(plan.has_value()) << plan.error().message();
        EXPECT_EQ(plan->plans_tried, 1U);
        ++planned;
    }
    EXPECT_GT(planned, 0U);
}

}  // namespace
}  // namespace frostline
