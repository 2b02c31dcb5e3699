// What `frostline plan` found, in the forms in which it tells it. All forms say the same.
#pragma once

#include "bindings/trace_planning.h"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace frostline::cli {

/// One policy's result, or why there is none.
struct PlanOutcome {
    std::string_view policy;
    std::optional<PlanningResult> result;
    std::string problem;  ///< one line, if there is no result or it is illegal

    bool legal() const noexcept { return result.has_value() && result->verdict.legal; }
};

/// Where the problem came from, and what is known of it whatever the policy.
struct PlanSubject {
    std::string trace_path;
    std::string machine_path;
    const PlanningProblem* problem = nullptr;
    LowerBound bound;
};

/// Mean over the schedule's steps.
std::uint64_t bytes_per_step(const ReplayVerdict& verdict, std::size_t link) noexcept;
/// "gpu->dram".
std::string link_name(const Machine& machine, std::size_t link);
/// How far a step is above the bound, 0.01 for one percent.
double above_bound(const ReplayVerdict& verdict, const LowerBound& bound) noexcept;
/// "3.214 s", "12.345 ms": four digits and more.
std::string time_text(double ns);

/// One result over several lines. The outcome has one.
void print_plan(const PlanSubject& subject, const PlanOutcome& outcome);
/// A line for each outcome.
void print_plans(const PlanSubject& subject, const std::vector<PlanOutcome>& outcomes);

/// Keys are only ever added.
nlohmann::ordered_json plan_json(const PlanSubject& subject, const PlanOutcome& outcome);
nlohmann::ordered_json plans_json(const PlanSubject& subject,
                                  const std::vector<PlanOutcome>& outcomes);

/// A page that needs nothing else: tiers, kernels and links over one step in the middle of a legal
/// outcome's schedule. Errors: out_of_memory.
Result<std::string> plan_page(const PlanSubject& subject, const PlanOutcome& outcome);

}  // namespace frostline::cli
