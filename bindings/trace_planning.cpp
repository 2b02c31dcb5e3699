// The planner and the policies differ in what they are asked with; from here on they do not.
#include "bindings/trace_planning.h"

#include "migration/planning/planner.h"
#include "migration/planning/policy_simulation.h"
#include "migration/policies/policy_catalogue.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <span>
#include <utility>

namespace frostline {
namespace {

std::uint64_t steady_ns() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

Result<Schedule> make_schedule(const PlanningProblem& problem, std::string_view name,
                               std::uint64_t time_limit_ns) {
    if (name == kPlannerName) {
        PlannerOptions options;
        options.time_limit_ns = time_limit_ns;
        options.now_ns = steady_ns;
        FROSTLINE_TRY(Plan plan, plan_schedule(problem.trace, problem.machine, options));
        return std::move(plan.schedule);
    }
    FROSTLINE_TRY(const auto policy, make_policy(name, problem.trace, problem.machine));
    FROSTLINE_TRY(SimulatedRun run, simulate_policy(problem.trace, problem.machine, *policy));
    return std::move(run.schedule);
}

/// Sorts what tiers hold over time into columns, of which each keeps the most.
class ColumnPeaks {
   public:
    ColumnPeaks(std::size_t tiers, std::uint64_t from_ns, std::uint64_t to_ns, std::size_t columns)
        : from_ns_(from_ns),
          to_ns_(to_ns),
          peaks_(tiers, std::vector<std::uint64_t>(columns, 0)),
          held_bytes_(tiers, 0) {}

    /// Times never go back.
    void hold_from(std::uint64_t at_ns, std::span<const std::uint64_t> used_bytes) {
        hold_until(at_ns);
        held_bytes_.assign(used_bytes.begin(), used_bytes.end());
    }

    /// What is held stays until then.
    void hold_until(std::uint64_t at_ns) {
        // What lasts no time never shows.
        const std::uint64_t begin_ns = std::max(since_ns_, from_ns_);
        const std::uint64_t end_ns = std::min(at_ns, to_ns_);
        since_ns_ = at_ns;
        if (begin_ns >= end_ns || peaks_.empty()) return;
        const std::size_t last = column(end_ns - 1);
        for (std::size_t each = column(begin_ns); each <= last; ++each) {
            for (std::size_t tier = 0; tier < peaks_.size(); ++tier) {
                peaks_[tier][each] = std::max(peaks_[tier][each], held_bytes_[tier]);
            }
        }
    }

    std::vector<std::vector<std::uint64_t>> take() && { return std::move(peaks_); }

   private:
    std::size_t column(std::uint64_t at_ns) const noexcept {
        const std::size_t columns = peaks_.front().size();
        const double part =
            static_cast<double>(at_ns - from_ns_) / static_cast<double>(to_ns_ - from_ns_);
        return std::min(columns - 1, static_cast<std::size_t>(part * static_cast<double>(columns)));
    }

    std::uint64_t from_ns_;
    std::uint64_t to_ns_;
    std::uint64_t since_ns_ = 0;
    std::vector<std::vector<std::uint64_t>> peaks_;
    std::vector<std::uint64_t> held_bytes_;
};

}  // namespace

Result<PlanningProblem> read_planning_problem(const std::string& trace_path,
                                              const std::string& machine_path,
                                              std::optional<std::uint64_t> device_bytes) noexcept {
    try {
        FROSTLINE_TRY(Machine machine, read_machine(machine_path));
        FROSTLINE_TRY(Trace trace, read_trace(trace_path));
        if (device_bytes) machine.tiers[machine.device].size_bytes = *device_bytes;
        return PlanningProblem{std::move(trace), std::move(machine)};
    } catch (const std::bad_alloc&) {
        return Error(Errc::out_of_memory, 0, "no memory to read a trace and a machine");
    }
}

std::vector<std::string_view> planning_names() {
    std::vector<std::string_view> names(policy_names().begin(), policy_names().end());
    names.push_back(kPlannerName);
    return names;
}

Result<LowerBound> bound_of(const PlanningProblem& problem) noexcept {
    return lower_bound(problem.trace, problem.machine);
}

Result<PlanningResult> plan_with(const PlanningProblem& problem, std::string_view name,
                                 std::uint64_t time_limit_ns) noexcept {
    try {
        PlanningResult result;
        const std::uint64_t start_ns = steady_ns();
        FROSTLINE_TRY(result.schedule, make_schedule(problem, name, time_limit_ns));
        result.plan_s = static_cast<double>(steady_ns() - start_ns) * 1e-9;
        FROSTLINE_TRY(result.verdict, replay(problem.trace, problem.machine, result.schedule));
        return result;
    } catch (const std::bad_alloc&) {
        return Error(Errc::out_of_memory, 0, "no memory to plan with '{}'", name);
    }
}

std::string schedule_text(const PlanningProblem& problem, const Schedule& schedule) {
    return to_text(schedule, problem.trace, problem.machine);
}

Result<std::vector<std::vector<std::uint64_t>>> occupancy_of(const PlanningProblem& problem,
                                                             const Schedule& schedule,
                                                             std::uint64_t from_ns,
                                                             std::uint64_t to_ns,
                                                             std::size_t columns) noexcept {
    try {
        ColumnPeaks peaks(problem.machine.tiers.size(), from_ns, to_ns, columns);
        FROSTLINE_TRY_VOID(replay(problem.trace, problem.machine, schedule,
                                  [&](std::uint64_t at_ns, std::span<const std::uint64_t> used) {
                                      peaks.hold_from(at_ns, used);
                                  }));
        peaks.hold_until(to_ns);
        return std::move(peaks).take();
    } catch (const std::bad_alloc&) {
        return Error(Errc::out_of_memory, 0, "no memory for what tiers hold over time");
    }
}

}  // namespace frostline
