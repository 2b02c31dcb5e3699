// The figures as JSON, for programs: names are never changed, only added.
#include "bindings/cli/plan_result.h"

#include <nlohmann/json.hpp>

#include <cmath>

namespace frostline::cli {
namespace {

using Json = nlohmann::ordered_json;

Json subject_json(const PlanSubject& subject) {
    const Machine& machine = subject.problem->machine;
    return {{"trace", subject.trace_path},
            {"machine", subject.machine_path},
            {"device_bytes", machine.tiers[machine.device].size_bytes},
            {"ideal_ns", subject.problem->trace.ideal_ns()},
            // Rounded down: a bound that is rounded up is none.
            {"bound_ns", static_cast<std::uint64_t>(std::floor(subject.bound.step_ns))},
            {"repeating_bound_ns",
             static_cast<std::uint64_t>(std::floor(subject.bound.repeating_step_ns))}};
}

Json outcome_json(const PlanSubject& subject, const PlanOutcome& outcome) {
    Json out{{"policy", outcome.policy}, {"legal", outcome.legal()}};
    if (outcome.result) out["plan_s"] = outcome.result->plan_s;
    if (!outcome.legal()) {
        out["why"] = outcome.problem;
        return out;
    }
    const Machine& machine = subject.problem->machine;
    const ReplayVerdict& verdict = outcome.result->verdict;
    out["steps"] = verdict.steps;
    out["step_ns"] = static_cast<std::uint64_t>(std::llround(verdict.step_ns));
    out["slowdown"] = verdict.slowdown;
    out["above_bound"] = above_bound(verdict, subject.bound);
    Json peaks = Json::object();
    for (std::size_t i = 0; i < machine.tiers.size(); ++i) {
        peaks[machine.tiers[i].name] = verdict.peak_bytes[i];
    }
    out["peak_bytes"] = std::move(peaks);
    Json moved = Json::object();
    for (std::size_t i = 0; i < machine.links.size(); ++i) {
        moved[link_name(machine, i)] = bytes_per_step(verdict, i);
    }
    out["moved_bytes"] = std::move(moved);
    return out;
}

}  // namespace

Json plan_json(const PlanSubject& subject, const PlanOutcome& outcome) {
    Json out = subject_json(subject);
    out.update(outcome_json(subject, outcome));
    return out;
}

Json plans_json(const PlanSubject& subject, const std::vector<PlanOutcome>& outcomes) {
    Json out = subject_json(subject);
    out["plans"] = Json::array();
    for (const PlanOutcome& each : outcomes) {
        out["plans"].push_back(outcome_json(subject, each));
    }
    return out;
}

}  // namespace frostline::cli
