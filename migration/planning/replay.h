// Replays a schedule, event by event, and says whether it is legal and how long a step really
// takes. It works out residency, capacity and load by itself and believes nothing that the
// schedule's maker knew: so a fault of a planner shows here.
#pragma once

#include "migration/planning/machine.h"
#include "migration/planning/schedule.h"
#include "migration/planning/trace.h"

#include <cstdint>
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

/// Says whether a schedule is legal. It is, if
/// - it has three whole steps or more, whose kernels run in order, each when the one before is
/// done;
/// - weights are whole somewhere before the first step, and nothing else is anywhere;
/// - a kernel, as it starts, finds all bytes of what it uses valid on the device; what is not born
///   yet is born there, which takes room;
/// - no tier holds more than its size, where a move takes room at its target as it starts;
/// - moves are of valid bytes of living tensors, over links that exist, to where none of the bytes
///   is yet, and last longer than their link's latency;
/// - no resource carries more than its bandwidth, but for a millionth that rounding may cost;
/// - nothing is copied while it is written, or when it dies; a write makes all copies below void;
/// - drops are of valid bytes that no move reads, nor a kernel on the device, and that are valid
///   elsewhere, too.
/// At one instant moves end first, then kernels with what dies in them, then drops happen, then
/// moves start, and kernels last.
///
/// Errors: out_of_memory. Deterministic. O(n log n) in the schedule's lines; budget: a million
/// kernels and a hundred thousand moves in a second. Trace and machine are whole (trace.h,
/// machine.h); the schedule may be anything.
Result<ReplayVerdict> replay(const Trace& trace, const Machine& machine,
                             const Schedule& schedule) noexcept;

}  // namespace frostline
