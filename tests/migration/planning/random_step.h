// Random small steps and machines for a planner: tight in every way that memory and links can be.
#pragma once

#include "migration/planning/machine.h"
#include "migration/planning/trace.h"

#include <cstdint>
#include <random>

namespace frostline {

struct RandomStep {
    Trace trace;
    Machine machine;
};

/// What the hungriest kernel uses, and which one it is: the first of several.
struct KernelNeed {
    KernelIndex kernel = 0;
    std::uint64_t bytes = 0;
};
KernelNeed largest_need(const Trace& trace);

/// A trace of 1 to 12 tensors, now and then of 100: weights that are read, written or unused, and
/// either uses without order or forward and backward passes. A machine of 1 to 4 tiers: the device
/// has what one kernel needs, a byte less, or up to what all tensors take; the others may be too
/// small, links may be missing, share resources, be slow and have latencies beyond a step's length.
RandomStep make_random_step(std::mt19937_64& random);

/// Whether a schedule surely exists: kernels fit, and a tier with links both ways holds all tensors
/// at once, so that everything but what a kernel uses could wait there.
bool is_surely_feasible(const RandomStep& step);

}  // namespace frostline
