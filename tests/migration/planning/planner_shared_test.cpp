// Real traces on the machine that others were measured on: slowdown within the bars, and the
// schedules judged by the referee as well.
#include "migration/planning/lower_bound.h"
#include "migration/planning/planner.h"
#include "migration/planning/replay.h"
#include "tests/migration/planning/random_step.h"
#include "tests/tiers/scratch_folder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

namespace frostline {
namespace {

constexpr double kMostSlowdown = 1.01;
constexpr double kMostOverBound = 1.03;
constexpr std::uint64_t kGib = std::uint64_t{1} << 30;

std::filesystem::path shared() {
    return std::filesystem::path(__FILE__).parent_path() / "../../../../shared";
}

class PlannerOnSharedTraces : public testing::TestWithParam<const char*> {
   protected:
    void SetUp() override {
        if (!std::filesystem::exists(shared() / "referee" / "referee.py") ||
            std::system("python3 -c pass 2>/dev/null") != 0) {
            GTEST_SKIP() << "no ../shared/referee beside the source tree, or no python3";
        }
        auto trace = read_trace(trace_path());
        ASSERT_TRUE(trace.has_value()) << trace.error().message();
        trace_.emplace(*std::move(trace));
        auto machine = read_machine(shared() / "referee" / "a100-40g.json");
        ASSERT_TRUE(machine.has_value()) << machine.error().message();
        machine_ = *std::move(machine);
    }

    std::filesystem::path trace_path() const {
        return shared() / "traces" / (std::string(GetParam()) + ".trace");
    }

    Plan plan_on(std::uint64_t device_bytes) {
        machine_.tiers[machine_.device].size_bytes = device_bytes;
        auto plan = plan_schedule(*trace_, machine_, {});
        EXPECT_TRUE(plan.has_value()) << plan.error().message();
        return plan ? *std::move(plan) : Plan{};
    }

    /// What the referee says of a schedule on the machine as it is now.
    nlohmann::json referee_on(const Schedule& schedule) const {
        const ScratchFolder folder;
        auto machine = nlohmann::json::parse(std::ifstream(shared() / "referee" / "a100-40g.json"));
        machine["tiers"][machine_.device]["bytes"] = machine_.tiers[machine_.device].size_bytes;
        std::ofstream(folder.file("machine")) << machine;
        std::ofstream(folder.file("schedule")) << to_text(schedule, *trace_, machine_);
        const std::string command =
            fmt::format("python3 -B '{}' '{}' '{}' '{}' --json >'{}'",
                        (shared() / "referee" / "referee.py").string(), trace_path().string(),
                        folder.file("machine"), folder.file("schedule"), folder.file("verdict"));
        (void)std::system(command.c_str());
        return nlohmann::json::parse(std::ifstream(folder.file("verdict")), nullptr, false);
    }

    void expect_same_from_referee(const Plan& plan) const {
        const nlohmann::json verdict = referee_on(plan.schedule);
        ASSERT_TRUE(verdict.is_object()) << "the referee said nothing";
        ASSERT_TRUE(verdict.value("legal", false)) << verdict;
        EXPECT_NEAR(verdict.value("step_ns", 0.0), plan.step_ns, 1);
        EXPECT_NEAR(verdict.value("slowdown", 0.0), plan.slowdown, 1e-6);
    }

    std::optional<Trace> trace_;
    Machine machine_;
};

TEST_P(PlannerOnSharedTraces, HideTheirCopiesOnTheWholeDevice) {
    const Plan plan = plan_on(machine_.tiers[machine_.device].size_bytes);
    EXPECT_LE(plan.slowdown, kMostSlowdown);
    expect_same_from_referee(plan);
}

// Within the first bar wherever the lower bound is, and never far from the bound.
TEST_P(PlannerOnSharedTraces, StayNearTheBoundOnThreeQuartersOfTheDevice) {
    const std::uint64_t least = largest_need(*trace_).bytes;
    const std::uint64_t device_bytes =
        std::max(least, machine_.tiers[machine_.device].size_bytes / 4 * 3);
    const Plan plan = plan_on(device_bytes);
    const auto bound = lower_bound(*trace_, machine_);
    ASSERT_TRUE(bound.has_value());
    EXPECT_LE(plan.step_ns, bound->step_ns * kMostOverBound);
    expect_same_from_referee(plan);
}

// However little there is, as long as each kernel fits: legal by the referee, too.
TEST_P(PlannerOnSharedTraces, RunOnTheLeastThatOneKernelNeeds) {
    const std::uint64_t least = largest_need(*trace_).bytes;
    const Plan plan = plan_on(least);
    expect_same_from_referee(plan);
    machine_.tiers[machine_.device].size_bytes = least - 1;
    const auto refused = plan_schedule(*trace_, machine_, {});
    ASSERT_FALSE(refused.has_value());
    const KernelIndex kernel = largest_need(*trace_).kernel;
    EXPECT_EQ(refused.error().message(),
              fmt::format("kernel {} ({}) needs {} bytes at once and gpu has {}: 1 bytes are "
                          "missing",
                          kernel, trace_->name(kernel), least, least - 1));
}

// SSD has to take what DRAM cannot.
class PlannerOnLittleDram : public PlannerOnSharedTraces {};

TEST_P(PlannerOnLittleDram, UseWhatLiesBelowALittleDram) {
    for (MachineTier& each : machine_.tiers) {
        if (each.name == "dram") each.size_bytes = 4 * kGib;
    }
    const Plan plan = plan_on(machine_.tiers[machine_.device].size_bytes);
    const auto verdict = replay(*trace_, machine_, plan.schedule);
    ASSERT_TRUE(verdict.has_value());
    EXPECT_TRUE(verdict->legal) << verdict->why;
}

// To plan vit-1280 so takes longer than a test may.
INSTANTIATE_TEST_SUITE_P(Traces, PlannerOnLittleDram, testing::Values("bert-256"),
                         [](const auto&) { return std::string("bert256"); });

INSTANTIATE_TEST_SUITE_P(Traces, PlannerOnSharedTraces,
                         testing::Values("bert-256", "vit-1280", "inception-1536"),
                         [](const auto& each) {
                             std::string name = each.param;
                             std::erase(name, '-');
                             return name;
                         });

}  // namespace
}  // namespace frostline
