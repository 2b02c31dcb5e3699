// The transfers of a plan in the order in which they are carried out, over several steps. Copies of
// one gap that follow each other are one copy, up to a given size.
#pragma once

#include "migration/planning/plan_timeline.h"
#include "migration/planning/transfer_plan.h"

#include <cstdint>
#include <vector>

namespace frostline {

/// Slots count from the start of step 0.
struct QueuedCopy {
    TensorRange range;
    LinkIndex link = 0;
    SlotIndex slot = 0;
    SlotIndex needed_by = 0;
    SlotIndex void_at = 0;
    std::int64_t step = 0;  ///< whose plan it is of
};
struct QueuedDrop {
    TensorRange range;
    SlotIndex slot = 0;
    SlotIndex needed_by = 0;
};

struct TransferQueues {
    std::vector<std::vector<QueuedCopy>> outs;  ///< by link, in the order of slots
    std::vector<std::vector<QueuedCopy>> ins;   ///< by link, in the order of slots
    std::vector<QueuedDrop> drops;              ///< in the order of slots
};

/// Those of `steps` steps and of the step before them. May throw std::bad_alloc.
TransferQueues queue_transfers(const TransferPlan& plan, const Machine& machine,
                               const PlanTimeline& timeline, std::uint32_t steps,
                               std::uint64_t largest_copy_bytes);

}  // namespace frostline
