// What can be said against a schedule before anything is replayed: its lines name what exists, and
// its kernels are those of whole steps, one at a time and in order.
#pragma once

#include "migration/planning/machine.h"
#include "migration/planning/objection.h"
#include "migration/planning/schedule.h"
#include "migration/planning/trace.h"

#include <cstdint>
#include <vector>

namespace frostline {

/// When the kernels of whole steps start.
struct KernelStarts {
    std::uint32_t steps = 0;
    std::vector<std::uint64_t> start_ns;  ///< of the first step's kernels in order, the second's...
};

/// Every line names tensors and tiers that exist, and bytes within its tensor. May throw
/// std::bad_alloc.
Objection check_lines(const Trace& trace, const Machine& machine, const Schedule& schedule);

/// Fills `starts`, or says what is wrong with the kernels. O(n) where the schedule lists them in
/// order, else O(n log n). May throw std::bad_alloc.
Objection order_kernels(const Trace& trace, const Schedule& schedule, KernelStarts& starts);

}  // namespace frostline
