// What the baselines reach on recorded training steps, where those lie beside the source tree. The
// figures of on-demand LRU are others' and so check the simulation; the rest keep it from slipping.
#include "migration/planning/policy_simulation.h"
#include "migration/planning/replay.h"
#include "migration/policies/policy_catalogue.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <ostream>
#include <string>

namespace frostline {
namespace {

struct Case {
    const char* trace;
    const char* policy;
    double least_slowdown;
    double most_slowdown;
};
std::ostream& operator<<(std::ostream& out, const Case& each) {
    return out << each.policy << " on " << each.trace;
}

class RecordedSteps : public testing::TestWithParam<Case> {};

TEST_P(RecordedSteps, ReachTheirSlowdown) {
    const auto shared = std::filesystem::path(__FILE__).parent_path() / "../../../../shared";
    if (!std::filesystem::exists(shared / "traces")) {
        GTEST_SKIP() << "no ../shared/traces beside the source tree";
    }
    const Case& each = GetParam();
    const auto trace = read_trace(shared / "traces" / (std::string(each.trace) + ".trace"));
    ASSERT_TRUE(trace.has_value()) << trace.error().message();
    const auto machine = read_machine(shared / "referee/a100-40g.json");
    ASSERT_TRUE(machine.has_value()) << machine.error().message();
    const auto policy = make_policy(each.policy, *trace, *machine);
    ASSERT_TRUE(policy.has_value()) << policy.error().message();
    const auto run = simulate_policy(*trace, *machine, **policy);
    ASSERT_TRUE(run.has_value()) << run.error().message();
    const auto verdict = replay(*trace, *machine, run->schedule);
    ASSERT_TRUE(verdict.has_value()) << verdict.error().message();
    ASSERT_TRUE(verdict->legal) << verdict->why;
    RecordProperty("slowdown", std::to_string(verdict->slowdown));
    EXPECT_GE(verdict->slowdown, each.least_slowdown);
    EXPECT_LE(verdict->slowdown, each.most_slowdown);
    EXPECT_EQ(run->fallbacks, 0U);
}

std::string name_of(const testing::TestParamInfo<Case>& info) {
    std::string name = std::string(info.param.policy) + "_" + info.param.trace;
    for (char& each : name) each = each == '-' ? '_' : each;
    return name;
}

INSTANTIATE_TEST_SUITE_P(
    Policies, RecordedSteps,
    testing::Values(
        Case{"bert-256", "lru-on-demand", 1.19, 1.21},
        Case{"vit-1280", "lru-on-demand", 1.80, 1.84},
        Case{"inception-1536", "lru-on-demand", 1.20, 1.23}, Case{"bert-256", "lru", 1, 1.11},
        Case{"vit-1280", "lru", 1, 1.58}, Case{"inception-1536", "lru", 1, 1.95},
        Case{"bert-256", "lru-prefetch", 1, 1.09}, Case{"vit-1280", "lru-prefetch", 1, 1.42},
        Case{"inception-1536", "lru-prefetch", 1, 1.09}, Case{"bert-256", "belady", 1, 1.16},
        Case{"vit-1280", "belady", 1, 1.65}, Case{"inception-1536", "belady", 1, 1.23},
        Case{"bert-256", "fifo-offload", 1, 1.001}, Case{"vit-1280", "fifo-offload", 1, 1.19},
        Case{"inception-1536", "fifo-offload", 1, 1.07}, Case{"bert-256", "g10", 1, 1.001},
        Case{"vit-1280", "g10", 1, 1.34}, Case{"inception-1536", "g10", 1, 1.03}),
    name_of);

}  // namespace
}  // namespace frostline
