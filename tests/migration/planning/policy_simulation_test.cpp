// Proves that whatever a policy decides, its schedule is legal by the replay, which shares nothing
// with the simulation; that time passes as copies and kernels need it; and that a policy that
// leaves a kernel without room is helped or refused, but never waited for.
#include "migration/planning/policy_simulation.h"

#include "migration/planning/replay.h"
#include "migration/planning/trace_builder.h"
#include "migration/policies/on_demand_policy.h"
#include "migration/policies/policy_catalogue.h"
#include "tests/migration/planning/random_training.h"
#include "tests/tiers/seed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

namespace frostline {
namespace {

using testing::HasSubstr;

ReplayVerdict verdict_of(const Trace& trace, const Machine& machine, const Schedule& schedule) {
    const auto verdict = replay(trace, machine, schedule);
    EXPECT_TRUE(verdict.has_value());
    return verdict.value_or(ReplayVerdict{});
}

/// Decides what a function says.
class ScriptedPolicy final : public Policy {
   public:
    using Script =
        std::function<void(const PolicyView&, const PolicyEvent&, std::vector<Decision>&)>;
    explicit ScriptedPolicy(Script script) : script_(std::move(script)) {}
    std::string_view name() const noexcept override { return "scripted"; }
    void decide(const PolicyView& view, const PolicyEvent& event,
                std::vector<Decision>& decisions) const override {
        script_(view, event, decisions);
    }

   private:
    Script script_;
};

const ScriptedPolicy& idle_policy() {
    static const ScriptedPolicy policy([](auto&&...) {});
    return policy;
}

TEST(PolicySimulation, GivesLegalSchedulesUnderEveryPolicy) {
    auto random = random_stream(1);
    for (int round = 0; round < 300; ++round) {
        const RandomTraining training(random);
        for (const std::string_view name : policy_names()) {
            SCOPED_TRACE(testing::Message() << "round " << round << ", policy " << name);
            const auto policy = make_policy(name, training.trace, training.machine);
            ASSERT_TRUE(policy.has_value()) << policy.error().message();
            const auto run = simulate_policy(training.trace, training.machine, **policy);
            ASSERT_TRUE(run.has_value()) << run.error().message();
            const auto verdict = verdict_of(training.trace, training.machine, run->schedule);
            ASSERT_TRUE(verdict.legal) << verdict.why << "\n" << to_text(training.trace);
            ASSERT_EQ(verdict.steps, 5U);
            const auto again = simulate_policy(training.trace, training.machine, **policy);
            ASSERT_TRUE(again.has_value() && again->schedule == run->schedule)
                << "the second run differs";
        }
    }
}

// Any tensor to any tier at any time, and copies given up.
TEST(PolicySimulation, GivesLegalSchedulesWhateverIsDecided) {
    auto random = random_stream(2);
    int completed = 0;
    for (int round = 0; round < 300; ++round) {
        SCOPED_TRACE(testing::Message() << "round " << round);
        const RandomTraining training(random);
        std::mt19937_64 choices(random());
        const ScriptedPolicy policy(
            [&](const PolicyView& view, const PolicyEvent&, std::vector<Decision>& decisions) {
                for (const TensorRecord& record : view.by_birth) {
                    if (between(choices, 0, 3) > 0) continue;
                    const auto action = between(choices, 0, 3) == 0 ? Decision::Action::drop_copy
                                                                    : Decision::Action::move;
                    const auto tier = between(choices, 0, view.tiers.size());  // one does not exist
                    decisions.push_back({action, record.id(), static_cast<TierId>(tier)});
                }
            });
        const auto run = simulate_policy(training.trace, training.machine, policy);
        if (!run) {
            ASSERT_EQ(run.error().code(), Errc::no_space) << run.error().message();
            continue;
        }
        ++completed;
        const auto verdict = verdict_of(training.trace, training.machine, run->schedule);
        ASSERT_TRUE(verdict.legal) << verdict.why << "\n" << to_text(training.trace);
    }
    EXPECT_GT(completed, 200);
}

TEST(PolicySimulation, FallsBackWhereNothingIsDecided) {
    auto random = random_stream(3);
    std::uint64_t fallbacks = 0;
    for (int round = 0; round < 100; ++round) {
        const RandomTraining training(random);
        const auto run = simulate_policy(training.trace, training.machine, idle_policy());
        ASSERT_TRUE(run.has_value()) << run.error().message();
        const auto verdict = verdict_of(training.trace, training.machine, run->schedule);
        ASSERT_TRUE(verdict.legal) << verdict.why;
        fallbacks += run->fallbacks;
    }
    EXPECT_GT(fallbacks, 0U);
}

/// Two weights of 60 bytes that kernels of 100 ns read in turn.
Trace two_weights(bool second_kernel_writes = false) {
    TraceBuilder builder;
    const TensorIndex a = *builder.add_tensor(1, 60, "weight");
    const TensorIndex b = *builder.add_tensor(2, 60, "weight");
    const std::vector<TensorIndex> first{a};
    const std::vector<TensorIndex> second{b};
    EXPECT_TRUE(builder.add_kernel(100, "first", first, {}));
    if (second_kernel_writes) {
        EXPECT_TRUE(builder.add_kernel(100, "second", {}, second));
    } else {
        EXPECT_TRUE(builder.add_kernel(100, "second", second, {}));
    }
    return *builder.finish();
}

std::vector<std::uint64_t> kernel_starts(const SimulatedRun& run) {
    std::vector<std::uint64_t> starts;
    for (const ScheduledKernel& kernel : run.schedule.kernels) starts.push_back(kernel.start_ns);
    return starts;
}

// At a byte each nanosecond. The device holds one of the weights, so the other begins below.
TEST(PolicySimulation, AKernelWaitsForRoomAndThenForItsTensors) {
    const Trace trace = two_weights();
    const auto run = simulate_policy(trace, machine_with(100, 1e9, {1e9}), OnDemandPolicy(), 2);
    ASSERT_TRUE(run.has_value()) << run.error().message();
    // Weight 1 leaves in 60 ns and weight 2 comes in 60 ns. Weight 2 has a copy below still and so
    // leaves at once, and weight 1 comes back.
    EXPECT_THAT(kernel_starts(*run), testing::ElementsAre(0, 220, 380, 540));
    EXPECT_THAT(run->schedule.moves,
                testing::ElementsAre(ScheduledMove{{0, 0, 60}, 0, 1, 100, 160},
                                     ScheduledMove{{1, 0, 60}, 1, 0, 160, 220},
                                     ScheduledMove{{0, 0, 60}, 1, 0, 320, 380},
                                     ScheduledMove{{1, 0, 60}, 1, 0, 480, 540}));
    EXPECT_EQ(run->fallbacks, 0U);
}

TEST(PolicySimulation, AWriteMakesTheCopiesBelowVoid) {
    const Trace trace = two_weights(true);
    const Machine machine = machine_with(100, 1e9, {1e9});
    const auto run = simulate_policy(trace, machine, OnDemandPolicy(), 3);
    ASSERT_TRUE(run.has_value()) << run.error().message();
    const auto verdict = verdict_of(trace, machine, run->schedule);
    ASSERT_TRUE(verdict.legal) << verdict.why;
    // Weight 2 has to be copied out after each of its kernels.
    EXPECT_THAT(kernel_starts(*run), testing::ElementsAre(0, 220, 440, 600, 820, 980));
}

// What leaves while a kernel runs costs no time, and neither does what comes back meanwhile.
TEST(PolicySimulation, CopiesRunBesideKernels) {
    const Trace trace = two_weights();
    const ScriptedPolicy policy(
        [](const PolicyView& view, const PolicyEvent& event, std::vector<Decision>& decisions) {
            if (event.kind != PolicyEvent::Kind::used) return;
            for (const TensorRecord* const record : view.step->records) {
                if (record == event.tensor) continue;
                decisions.push_back({Decision::Action::move, record->id(), TierId{0}});
            }
        });
    const auto run = simulate_policy(trace, machine_with(120, 1e9, {1e9}), policy, 2);
    ASSERT_TRUE(run.has_value()) << run.error().message();
    EXPECT_THAT(kernel_starts(*run), testing::ElementsAre(0, 100, 200, 300));
}

TEST(PolicySimulation, TellsWhereInTheStepItIs) {
    const Trace trace = two_weights();
    std::vector<std::uint32_t> kernels;
    const ScriptedPolicy policy(
        [&](const PolicyView& view, const PolicyEvent& event, std::vector<Decision>&) {
            if (event.kind != PolicyEvent::Kind::used) return;
            kernels.push_back(view.step->kernel);
            EXPECT_EQ(view.step->tensor(*event.tensor), view.step->kernel);
            EXPECT_EQ(view.step->records[view.step->kernel], event.tensor);
        });
    ASSERT_TRUE(simulate_policy(trace, machine_with(200, 1e9, {1e9}), policy, 2).has_value());
    EXPECT_THAT(kernels, testing::ElementsAre(0, 1, 0, 1));
}

// Two small weights come and go, one of them at any time, so that something is always under way and
// never makes room for the kernel that waits.
TEST(PolicySimulation, OutlastsAPolicyThatIsBusyWithOtherThings) {
    TraceBuilder builder;
    const TensorIndex a = *builder.add_tensor(1, 60, "weight");
    const TensorIndex b = *builder.add_tensor(2, 60, "weight");
    for (const std::uint64_t id : {3U, 4U}) ASSERT_TRUE(builder.add_tensor(id, 15, "weight"));
    ASSERT_TRUE(builder.add_kernel(100, "first", {&a, 1}, {}));
    ASSERT_TRUE(builder.add_kernel(100, "second", {&b, 1}, {}));
    const Trace trace = *builder.finish();
    const ScriptedPolicy policy(
        [](const PolicyView& view, const PolicyEvent& event, std::vector<Decision>& decisions) {
            if (event.kind != PolicyEvent::Kind::pressure) return;
            for (const TensorIndex small : {2U, 3U}) {
                const TensorRecord& record = *view.step->records[small];
                const bool below = record.residency.load().home != TierId{0};
                decisions.push_back(
                    {Decision::Action::move, record.id(), below ? TierId{0} : TierId{1}});
            }
        });
    const Machine machine = machine_with(100, 1e9, {1e9});
    const auto run = simulate_policy(trace, machine, policy, 3);
    ASSERT_TRUE(run.has_value()) << run.error().message();
    EXPECT_GT(run->fallbacks, 0U);
    const auto verdict = verdict_of(trace, machine, run->schedule);
    EXPECT_TRUE(verdict.legal) << verdict.why;
}

TEST(PolicySimulation, RefusesAKernelThatTheDeviceCannotHold) {
    const auto run = simulate_policy(two_weights(), machine_with(50, 1e9, {1e9}), OnDemandPolicy());
    ASSERT_FALSE(run.has_value());
    EXPECT_EQ(run.error().code(), Errc::no_space);
    EXPECT_THAT(run.error().message(), HasSubstr("kernel 0 first"));
    EXPECT_THAT(run.error().message(), HasSubstr("10 bytes are missing"));
}

TEST(PolicySimulation, RefusesAMachineWithoutRoomBelow) {
    const Trace trace = two_weights();
    // Room for one of them each, and none to exchange them.
    const auto run = simulate_policy(trace, machine_with(100, 1e9, {1e9}, 60), OnDemandPolicy());
    ASSERT_FALSE(run.has_value());
    EXPECT_EQ(run.error().code(), Errc::no_space);
    EXPECT_THAT(run.error().message(), HasSubstr("kernel 1 second"));
    EXPECT_THAT(run.error().message(), HasSubstr("60 bytes"));
    const auto nowhere =
        simulate_policy(trace, machine_with(100, 1e9, {1e9}, 59), OnDemandPolicy());
    ASSERT_FALSE(nowhere.has_value());
    EXPECT_THAT(nowhere.error().message(), HasSubstr("weight 2 of 60 bytes"));
}

}  // namespace
}  // namespace frostline
