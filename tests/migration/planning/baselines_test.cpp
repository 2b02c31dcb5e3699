// Proves that each baseline is what its name says: which tensors it gives up, when, whereto, and
// when it has them back.
#include "migration/planning/future_uses.h"
#include "migration/planning/policy_simulation.h"
#include "migration/planning/replay.h"
#include "migration/planning/tiers_by_speed.h"
#include "migration/planning/trace_builder.h"
#include "migration/policies/belady_policy.h"
#include "migration/policies/fifo_offload_policy.h"
#include "migration/policies/g10_plan.h"
#include "migration/policies/lru_prefetch_policy.h"
#include "migration/policies/on_demand_policy.h"
#include "migration/policies/policy_catalogue.h"
#include "tests/migration/planning/random_training.h"
#include "tests/migration/policy_stage.h"
#include "tests/tiers/seed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace frostline {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// A step whose kernels each last `kernel_ns`: `layers` that each save an activation of 10 bytes,
/// and as many that read them again in the reverse order.
Trace forward_and_backward(std::size_t layers, std::uint64_t kernel_ns) {
    TraceBuilder builder;
    std::vector<TensorIndex> saved;
    for (std::size_t i = 0; i < layers; ++i) {
        saved.push_back(*builder.add_tensor(i, 10, "activation"));
        EXPECT_TRUE(builder.add_kernel(kernel_ns, "forward", {}, {&saved.back(), 1}));
    }
    for (std::size_t i = layers; i-- > 0;) {
        EXPECT_TRUE(builder.add_kernel(kernel_ns, "backward", {&saved[i], 1}, {}));
    }
    return *builder.finish();
}

SimulatedRun run_of(const Trace& trace, const Machine& machine, const Policy& policy) {
    auto run = simulate_policy(trace, machine, policy, 3);
    EXPECT_TRUE(run.has_value()) << run.error().message();
    return run ? *std::move(run) : SimulatedRun{};
}

double slowdown_of(const Trace& trace, const Machine& machine, const Policy& policy) {
    const auto verdict = replay(trace, machine, run_of(trace, machine, policy).schedule);
    EXPECT_TRUE(verdict && verdict->legal);
    return verdict ? verdict->slowdown : 0;
}

/// The tensors that move between two tiers in the first step, in order.
std::vector<TensorIndex> moved(const SimulatedRun& run, TierIndex from, TierIndex to,
                               std::uint64_t step_end_ns) {
    std::vector<TensorIndex> tensors;
    for (const ScheduledMove& move : run.schedule.moves) {
        if (move.from == from && move.to == to && move.end_ns <= step_end_ns) {
            tensors.push_back(move.range.tensor);
        }
    }
    return tensors;
}

TEST(OnDemandPolicy, DoesNothingUntilSomebodyWaits) {
    PolicyStage stage({{TierKind::device, 80}, {TierKind::dram, 1000}});
    TensorRecord& a = stage.tensor(40, 0);
    TensorRecord& b = stage.tensor(40, 0);
    EXPECT_THAT(stage.settled(OnDemandPolicy(), a), IsEmpty());
    EXPECT_THAT(stage.used(OnDemandPolicy(), b), IsEmpty());
    EXPECT_THAT(stage.pressure(OnDemandPolicy(), 40), ElementsAre(move_of(a, 1)));
    EXPECT_THAT(stage.pressure(OnDemandPolicy(), 41), ElementsAre(move_of(a, 1), move_of(b, 1)));
}

/// Three tensors that are used again at kernels 5, 3 and never.
class KnownStep : public testing::Test {
   protected:
    KnownStep() {
        TraceBuilder builder;
        const TensorIndex a = *builder.add_tensor(0, 10, "activation");
        const TensorIndex b = *builder.add_tensor(1, 10, "activation");
        const TensorIndex c = *builder.add_tensor(2, 10, "activation");
        for (const TensorIndex used : {a, b, c, b, c, a}) {
            EXPECT_TRUE(builder.add_kernel(100, "kernel", {&used, 1}, {}));
        }
        uses_ = std::make_shared<const FutureUses>(*builder.finish());
        for (int i = 0; i < 3; ++i) records_.push_back(&stage_.tensor(10, 0));
        for (const TensorRecord* const record : records_) {
            by_slot_.resize(std::max<std::size_t>(by_slot_.size(), record->slot + 1));
        }
        for (TensorIndex i = 0; i < 3; ++i) by_slot_[records_[i]->slot] = i;
    }

    std::vector<Decision> pressure(const Policy& policy, std::uint64_t bytes, KernelIndex kernel) {
        const StepView step{kernel, by_slot_, records_};
        std::vector<Decision> decisions;
        const std::vector<TierView> tiers{
            {.id = TierId{0}, .capacity_bytes = 30, .used_bytes = 30},
            {.id = TierId{1}, .kind = TierKind::dram, .capacity_bytes = 1000}};
        policy.decide({stage_.table.by_birth(), stage_.table.by_use(), tiers, 0, &step},
                      {PolicyEvent::Kind::pressure, nullptr, bytes}, decisions);
        return decisions;
    }

    PolicyStage stage_{{TierKind::device, 30}, {TierKind::dram, 1000}};
    std::shared_ptr<const FutureUses> uses_;
    std::vector<const TensorRecord*> records_;
    std::vector<std::uint32_t> by_slot_;
};

TEST_F(KnownStep, BeladyGivesUpWhatIsUsedAgainLast) {
    const BeladyPolicy policy(uses_);
    const auto gone = [&](TensorIndex i) { return move_of(*records_[i], 1); };
    EXPECT_THAT(pressure(policy, 10, 2), ElementsAre(gone(0)));
    EXPECT_THAT(pressure(policy, 20, 2), ElementsAre(gone(0), gone(2)));
    EXPECT_THAT(pressure(policy, 30, 2), ElementsAre(gone(0), gone(2), gone(1)));
    EXPECT_THAT(pressure(policy, 10, 3), ElementsAre(gone(1))) << "it is never used again";
}

TEST_F(KnownStep, WithoutAKnownStepTheLeastRecentlyUsedGoes) {
    Machine machine = machine_with(30, 1e9, {1e9});
    for (const std::string_view name : {"belady", "fifo-offload", "lru-on-demand"}) {
        const Trace trace = forward_and_backward(3, 100);
        const auto policy = make_policy(name, trace, machine);
        ASSERT_TRUE(policy.has_value());
        EXPECT_THAT(stage_.pressure(**policy, 20),
                    ElementsAre(move_of(*records_[0], 1), move_of(*records_[1], 1)))
            << name;
        EXPECT_THAT(stage_.settled(**policy, *records_[0]), IsEmpty()) << name;
        EXPECT_THAT(stage_.used(**policy, *records_[0]), IsEmpty()) << name;
    }
}

// A link that is as fast as the kernels need hides all copies from who looks ahead.
TEST(LruPrefetchPolicy, HidesTheCopiesThatOnDemandWaitsFor) {
    const Trace trace = forward_and_backward(16, 100);
    const Machine machine = machine_with(80, 1e9, {1e9});
    const LruPrefetchPolicy ahead(std::make_shared<const FutureUses>(trace));
    EXPECT_GT(slowdown_of(trace, machine, OnDemandPolicy()), 1.04);
    EXPECT_LT(slowdown_of(trace, machine, ahead), 1.001);
}

TEST(FifoOffloadPolicy, SendsAwayInOrderAndFetchesInReverse) {
    const Trace trace = forward_and_backward(6, 100);
    const Machine machine = machine_with(1000, 1e9, {1e9});
    const FifoOffloadPolicy policy(std::make_shared<const FutureUses>(trace));
    const SimulatedRun run = run_of(trace, machine, policy);
    // All leave, though there is room for all. The last is wanted at once, and so stays as well.
    EXPECT_THAT(moved(run, 0, 1, 1200), ElementsAre(0, 1, 2, 3, 4, 5));
    EXPECT_THAT(moved(run, 1, 0, 1200), ElementsAre(4, 3, 2, 1, 0));
}

TEST(FifoOffloadPolicy, HasAFewOnTheWayAtMost) {
    const Trace trace = forward_and_backward(20, 10);
    const Machine machine = machine_with(1000, 1e9, {1e8});  // 100 ns each
    const auto inner = std::make_shared<const FutureUses>(trace);
    /// Counts what is on its way when the policy is asked.
    class Counting final : public Policy {
       public:
        explicit Counting(std::shared_ptr<const FutureUses> uses) : policy_(std::move(uses)) {}
        std::string_view name() const noexcept override { return policy_.name(); }
        void decide(const PolicyView& view, const PolicyEvent& event,
                    std::vector<Decision>& decisions) const override {
            policy_.decide(view, event, decisions);
            most_bytes = std::max(most_bytes, view.tiers[0].leaving_bytes);
        }
        mutable std::uint64_t most_bytes = 0;

       private:
        FifoOffloadPolicy policy_;
    };
    const Counting policy(inner);
    (void)run_of(trace, machine, policy);
    EXPECT_EQ(policy.most_bytes, FifoOffloadPolicy::kMostLeaving * 10);
}

std::vector<G10Trip> trips_of(const Trace& trace, const Machine& machine) {
    return plan_g10_trips(FutureUses(trace), machine, *tiers_by_speed(machine));
}

TEST(G10Plan, LeavesWhatFitsAlone) {
    EXPECT_THAT(trips_of(forward_and_backward(8, 100), machine_with(80, 1e9, {1e9})), IsEmpty());
}

// One activation too many, for two kernels. A copy takes two kernels each way.
TEST(G10Plan, ReturnsAsLateAsIsSafe) {
    const Trace trace = forward_and_backward(8, 100);
    const auto trips = trips_of(trace, machine_with(70, 1e9, {5e7}));  // 200 ns each way
    ASSERT_EQ(trips.size(), 1U);
    const G10Trip& trip = trips[0];
    EXPECT_EQ(trip.leaves_after, trip.tensor) << "as soon as it is idle";
    EXPECT_LE(trip.leaves_after + 2U, 6U) << "it is gone when kernel 7 needs room";
    EXPECT_EQ(trip.back_by, 15 - trip.tensor);
    EXPECT_EQ(trip.fetched_from, trip.back_by - 2) << "as late as is safe";
}

TEST(G10Plan, PrefersTheSlowTierUntilItsBandwidthIsUsedUp) {
    const Trace trace = forward_and_backward(8, 100);
    const auto one = trips_of(trace, machine_with(70, 1e9, {1e9, 5e7}));
    ASSERT_EQ(one.size(), 1U);
    EXPECT_EQ(one[0].tier, TierId{2});
    // Half of the activations have to leave, one each 100 ns, which is twice what it can take.
    const auto many = trips_of(trace, machine_with(40, 1e9, {1e9, 5e7}));
    const auto to = [&](TierId tier) {
        return std::count_if(many.begin(), many.end(),
                             [&](const G10Trip& trip) { return trip.tier == tier; });
    };
    EXPECT_GE(to(TierId{1}), 1);
    EXPECT_GE(to(TierId{2}), 1);
}

TEST(G10Plan, LeavesAndReturnsWithinAnIdlePeriod) {
    auto random = random_stream(30);
    std::size_t trips = 0;
    for (int round = 0; round < 100; ++round) {
        const RandomTraining training(random);
        const FutureUses uses(training.trace);
        for (const G10Trip& trip : trips_of(training.trace, training.machine)) {
            ++trips;
            ASSERT_EQ(uses.next_use(trip.tensor, trip.leaves_after), trip.back_by);
            ASSERT_GT(trip.fetched_from, trip.leaves_after);
            ASSERT_LT(trip.fetched_from, trip.back_by);
            ASSERT_NE(trip.tier, TierId{0});
        }
    }
    EXPECT_GT(trips, 0U);
}

TEST(PolicyCatalogue, MakesEachPolicyByItsName) {
    const Trace trace = forward_and_backward(3, 100);
    const Machine machine = machine_with(30, 1e9, {1e9});
    EXPECT_THAT(policy_names(), ElementsAre("lru-on-demand", "lru", "lru-prefetch", "belady",
                                            "fifo-offload", "g10"));
    for (const std::string_view name : policy_names()) {
        const auto policy = make_policy(name, trace, machine);
        ASSERT_TRUE(policy.has_value()) << policy.error().message();
        EXPECT_EQ((*policy)->name(), name);
    }
    const auto none = make_policy("best", trace, machine);
    ASSERT_FALSE(none.has_value());
    EXPECT_EQ(none.error().code(), Errc::invalid_argument);
    EXPECT_THAT(none.error().message(), HasSubstr("'best'; there are lru-on-demand, lru, "));
}

}  // namespace
}  // namespace frostline
