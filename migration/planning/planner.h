// From a trace and a machine to a schedule whose copies hide behind kernels, the same in every
// step.
#pragma once

#include "migration/planning/machine.h"
#include "migration/planning/schedule.h"
#include "migration/planning/trace.h"
#include "tiers/result.h"

#include <cstdint>
#include <functional>

namespace frostline {

struct PlannerOptions {
    std::uint32_t steps = 5;  ///< that the schedule covers; at least 3
    /// No further plan is tried once so much time has gone by on `now_ns`.
    std::uint64_t time_limit_ns = 2'000'000'000;
    std::function<std::uint64_t()> now_ns;  ///< empty: no limit
};

struct Plan {
    Schedule schedule;
    double step_ns = 0;
    double slowdown = 0;            ///< over the sum of the kernels' durations
    std::uint32_t plans_tried = 0;  ///< this is the best of them
    std::uint64_t rescues = 0;      ///< times that it had to be helped while it was carried out
};

/// Plans by transfer_plan.h for several settings, carries each out by plan_execution.h, and returns
/// the best, which replay.h has found to be legal. Deterministic, but for how many plans the time
/// limit allows. Errors: no_space (a kernel needs more than the device has, and which one, and how
/// many bytes are missing; or all tiers together are too small), invalid_argument (steps),
/// out_of_memory.
Result<Plan> plan_schedule(const Trace& trace, const Machine& machine,
                           const PlannerOptions& options) noexcept;

}  // namespace frostline
