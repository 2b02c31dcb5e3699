// A step cut into slots, in the order of time: each kernel's duration in slots of at most a given
// length, with the stall before it in slots of its own. A planner gives out room and links' time by
// the slot.
#pragma once

#include "migration/planning/trace.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace frostline {

/// A slot's place in the step. Those of other steps are beyond: slot s of step n is n * size + s.
using SlotIndex = std::int64_t;

struct PlanSlot {
    KernelIndex kernel = 0;         ///< that runs in it, or that the stall is before
    bool is_stall = false;          ///< no kernel runs
    std::uint64_t offset_ns = 0;    ///< from the start of the kernel, or of the stall
    std::uint64_t duration_ns = 0;  ///< may be 0
};

class PlanTimeline {
   public:
    /// `stall_ns`: before each kernel; as many as the trace has kernels. May throw std::bad_alloc.
    PlanTimeline(const Trace& trace, std::span<const std::uint64_t> stall_ns,
                 std::uint64_t longest_slot_ns);

    std::span<const PlanSlot> slots() const noexcept { return slots_; }
    SlotIndex size() const noexcept { return static_cast<SlotIndex>(slots_.size()); }
    const PlanSlot& at(SlotIndex slot) const noexcept {
        return slots_[static_cast<std::size_t>(slot)];
    }
    /// The first after the kernel before this one, whether stall or not.
    SlotIndex first_slot(KernelIndex kernel) const noexcept { return first_slots_[kernel]; }
    /// The first in which the kernel runs.
    SlotIndex kernel_slot(KernelIndex kernel) const noexcept { return kernel_slots_[kernel]; }
    /// The first after the kernel; size() after the last.
    SlotIndex end_slot(KernelIndex kernel) const noexcept { return first_slots_[kernel + 1]; }
    bool begins_gap(SlotIndex slot) const noexcept { return first_slots_[at(slot).kernel] == slot; }

   private:
    void add(KernelIndex kernel, bool is_stall, std::uint64_t duration_ns, std::uint64_t parts);

    std::vector<PlanSlot> slots_;
    std::vector<SlotIndex> first_slots_;  // one more than kernels
    std::vector<SlotIndex> kernel_slots_;
};

}  // namespace frostline
