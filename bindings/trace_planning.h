// Planning, as the command line asks for it: a trace and a machine from files, one policy at a
// time, and what its schedule comes to.
//
// Rule: what is said of a schedule was found by replaying it, whoever made it.
#pragma once

#include "bindings/api.h"
#include "migration/planning/lower_bound.h"
#include "migration/planning/machine.h"
#include "migration/planning/replay.h"
#include "migration/planning/schedule.h"
#include "migration/planning/trace.h"
#include "tiers/result.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace frostline {

/// Immutable once made; safe to share between threads.
struct PlanningProblem {
    Trace trace;
    Machine machine;
};

struct PlanningResult {
    Schedule schedule;
    ReplayVerdict verdict;
    double plan_s = 0;  ///< what making the schedule took, without the replay of it here
};

/// What goes by the name "planner" beside the policies.
inline constexpr std::string_view kPlannerName = "planner";

/// Reads both files; with `device_bytes` the machine's device has that size and not its own.
/// Errors, with file and line: invalid_argument, not_found, permission, io, out_of_memory.
FROSTLINE_API Result<PlanningProblem> read_planning_problem(
    const std::string& trace_path, const std::string& machine_path,
    std::optional<std::uint64_t> device_bytes) noexcept;

/// The policies and then the planner, in the order in which a table should have them. May throw
/// std::bad_alloc.
FROSTLINE_API std::vector<std::string_view> planning_names();

/// See lower_bound().
FROSTLINE_API Result<LowerBound> bound_of(const PlanningProblem& problem) noexcept;

/// A schedule of five steps by the planner or a policy. Only the planner heeds `time_limit_ns`.
/// An illegal schedule is a result, too; its verdict says so. Errors: invalid_argument (no such
/// name), no_space (what does not fit, and how many bytes are missing), out_of_memory.
FROSTLINE_API Result<PlanningResult> plan_with(const PlanningProblem& problem,
                                               std::string_view name,
                                               std::uint64_t time_limit_ns) noexcept;

/// The schedule as the text that other programs read. May throw std::bad_alloc.
FROSTLINE_API std::string schedule_text(const PlanningProblem& problem, const Schedule& schedule);

/// By tier and column, the most bytes that the tier holds in each of `columns` equal parts of the
/// time from `from_ns` to `to_ns`. Errors: out_of_memory.
FROSTLINE_API Result<std::vector<std::vector<std::uint64_t>>> occupancy_of(
    const PlanningProblem& problem, const Schedule& schedule, std::uint64_t from_ns,
    std::uint64_t to_ns, std::size_t columns) noexcept;

}  // namespace frostline
