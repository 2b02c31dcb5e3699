// Which tensors leave in which of their idle periods, by the method that the G10 paper (MICRO 2023)
// describes: periods are chosen one after another, the one first that relieves most memory pressure
// for the time that it occupies links; each leaves as soon as it is idle and returns as late as is
// safe; the slow, large tier is preferred until its bandwidth is used up.
//
// Rule: what is planned for a resource while a kernel runs never exceeds what it carries in that
// time, and what is planned for a tier never its size. Idle periods run into the next step.
#pragma once

#include "migration/planning/future_uses.h"
#include "migration/planning/machine.h"
#include "tiers/extent.h"
#include "tiers/result.h"

#include <cstdint>
#include <vector>

namespace frostline {

/// A tensor's absence in one idle period. Kernels of the next step are counted on.
struct G10Trip {
    TensorIndex tensor = 0;
    TierId tier{};
    KernelIndex leaves_after = 0;
    std::uint64_t fetched_from = 0;  ///< the fetch begins when this kernel starts
    std::uint64_t back_by = 0;       ///< the kernel that uses the tensor next
};

/// The trips, by `leaves_after`. `tiers` as tiers_by_speed() gives them. May throw std::bad_alloc.
std::vector<G10Trip> plan_g10_trips(const FutureUses& uses, const Machine& machine,
                                    const std::vector<TierIndex>& tiers);

}  // namespace frostline
