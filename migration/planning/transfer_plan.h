// What a plan moves in each step, and in which slots: which bytes are copied out of the device,
// when their copies there are given up, and when they are copied back in.
#pragma once

#include "migration/planning/link_calendar.h"
#include "migration/planning/machine.h"
#include "migration/planning/plan_timeline.h"
#include "migration/planning/schedule.h"
#include "migration/planning/tensor_uses.h"
#include "migration/planning/trace.h"

#include <cstdint>
#include <span>
#include <vector>

namespace frostline {

/// A tier below the device, with the links there and back.
struct Route {
    TierIndex tier = 0;
    LinkIndex out = 0;
    LinkIndex in = 0;
};
/// All of them, the fastest way back first. May throw std::bad_alloc.
std::vector<Route> routes_of(const Machine& machine);

/// A time between two uses of a tensor, numbered in the order in which such times begin.
using GapNumber = std::uint32_t;

/// Slots count from the start of the step in which the copy was given up. A copy out may lie before
/// that, and a copy in may be of the next step.
struct PlannedCopy {
    TensorRange range;
    LinkIndex link = 0;
    GapNumber gap = 0;
    SlotIndex slot = 0;       ///< not before
    SlotIndex needed_by = 0;  ///< the next use: whatever is copied out later is of no use
    SlotIndex void_at = 0;    ///< when a copy below is worth nothing
};
struct PlannedDrop {
    TensorRange range;  ///< of the device
    GapNumber gap = 0;
    SlotIndex slot = 0;
    SlotIndex needed_by = 0;
};
/// A weight that nobody writes has a copy below for good.
struct StandingCopy {
    TensorIndex tensor = 0;
    TierIndex tier = 0;
};

struct TransferPlan {
    std::vector<PlannedCopy> outs;
    std::vector<PlannedCopy> ins;
    std::vector<PlannedDrop> drops;
    std::vector<StandingCopy> standing;
    bool keeps_copies = true;        ///< below, after they were copied back
    bool lacked_room_below = false;  ///< for something that had better left
};

/// What may be tried to make a plan better.
struct TransferSettings {
    std::uint64_t device_bytes = 0;   ///< that tensors may take
    std::uint64_t reserve_bytes = 0;  ///< left free by what comes back before it must
    bool keeps_copies = true;         ///< below, until they are void: leaving again is free then
    /// What stays away for at least so many slots goes to the slowest tier that can serve it, so
    /// that faster ones have room for the rest.
    SlotIndex slow_from_slots = INT64_MAX;
};

/// The same in every step, beginning from the state in which a step like it ends. Greedy: in the
/// order of time, whatever will not fit is made to fit as early as links have time for it, by
/// giving up what is used again last (Belady, "A study of replacement algorithms for
/// virtual-storage computers", 1966), copied out at any time since it was written last, and copied
/// back as late as links allow. Where time is short, what is planned takes longer than the slots.
/// May throw std::bad_alloc. O(n log n) in slots and uses.
TransferPlan plan_transfers(const Trace& trace, const Machine& machine, const TensorUses& uses,
                            std::span<const Route> routes, const PlanTimeline& timeline,
                            const TransferSettings& settings);

}  // namespace frostline
