// A time that no legal schedule of a trace on a machine can beat (docs/planner.md has the proof).
//
// Rule: every figure here is proved, not estimated. Whatever chooses the prices that a bound is
// made of, the bound is computed from the prices alone and holds for any of them.
#pragma once

#include "migration/planning/machine.h"
#include "migration/planning/trace.h"

#include <cstdint>
#include <vector>

namespace frostline {

/// What crosses in a window: bytes that come in, that leave, or that leave until room is shortest
/// and come back from then on.
enum class BoundTraffic : std::uint8_t { in, out, out_then_in };

/// From the end of kernel `first` to the start of the one `kernels` further on, which may be one of
/// the next step: there one kind of traffic outlasts the kernels.
struct BoundWindow {
    KernelIndex first = 0;
    KernelIndex kernels = 0;
    BoundTraffic traffic = BoundTraffic::in;
    KernelIndex peak = 0;          ///< for out_then_in: at whose end the direction turns
    double compute_ns = 0;         ///< the kernels in it by themselves
    double traffic_ns = 0;         ///< what must cross meanwhile, at the links' full speed
    std::uint64_t room_bytes = 0;  ///< of the tiers that the traffic enters or leaves
};

/// Immutable value. `feasible` is false only where it is proved that no schedule exists; then
/// `kernel` and `missing_bytes` say what does not fit, and the times mean nothing.
struct LowerBound {
    bool feasible = true;
    KernelIndex kernel = 0;
    std::uint64_t missing_bytes = 0;
    bool device_is_short = false;  ///< else all tiers together are

    double compute_ns = 0;  ///< the kernels alone
    /// For the figure that is judged: (end of step 5 - end of step 1) / 4, whatever the schedule
    /// does in the first step and leaves undone in the last.
    double step_ns = 0;
    /// For the mean over ever more steps, and so for every schedule that repeats itself. Not below
    /// step_ns: nothing can be borrowed for ever.
    double repeating_step_ns = 0;
    std::vector<BoundWindow> windows;  ///< where traffic outlasts compute, the longest first
};

/// Deterministic. About n log n in the trace's uses. Errors: out_of_memory.
Result<LowerBound> lower_bound(const Trace& trace, const Machine& machine) noexcept;

}  // namespace frostline
