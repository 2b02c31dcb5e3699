// Replays a schedule, event by event, and says whether it is legal and how long a step really
// takes. It works out residency, capacity and load by itself and believes nothing that the
// schedule's maker knew: so a fault of a planner shows here.
#pragma once

#include "migration/planning/machine.h"
#include "migration/planning/schedule.h"
#include "migration/planning/trace.h"

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace frostline {

/// What a schedule comes to. Only `legal` and `why` mean anything when it is illegal.
struct ReplayVerdict {
    bool legal = false;
    std::string why;  ///< the first illegal act: when, what
    std::uint32_t steps = 0;
    std::uint64_t ideal_ns = 0;
    double step_ns = 0;   ///< (end of the last step - end of the first) / (steps - 1)
    double slowdown = 0;  ///< step_ns over ideal_ns
    std::vector<std::uint64_t> peak_bytes;   ///< by tier
    std::vector<std::uint64_t> moved_bytes;  ///< by link, over all steps
};

/// Told after each act at which time it happened and what each tier holds from then on. May throw
/// std::bad_alloc and nothing else.
using OccupancyListener =
    std::function<void(std::uint64_t at_ns, std::span<const std::uint64_t> used_bytes)>;

/// Errors: out_of_memory. Deterministic. O(n log n) in the schedule's lines.
Result<ReplayVerdict> replay(const Trace& trace, const Machine& machine, const Schedule& schedule,
                             const OccupancyListener& listener = {}) noexcept;

}  // namespace frostline
