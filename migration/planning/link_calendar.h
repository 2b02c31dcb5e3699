// How many bytes each link could still carry in each slot of a plan. What a link carries is taken
// from all of its resources, and so from the links that share them.
#pragma once

#include "migration/planning/machine.h"
#include "migration/planning/plan_timeline.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace frostline {

using LinkIndex = std::uint32_t;

/// Not thread-safe. The machine outlives it.
class LinkCalendar {
   public:
    /// Slots of `steps` steps. May throw std::bad_alloc.
    LinkCalendar(const Machine& machine, const PlanTimeline& timeline, std::uint32_t steps);

    /// Whole bytes, not negative.
    std::int64_t free_bytes(LinkIndex link, SlotIndex slot) const noexcept;
    /// May take more than there is: the excess is time that the step will lack.
    void take(LinkIndex link, SlotIndex slot, std::int64_t bytes) noexcept;

    /// The first slot at or after `from`, and the last one at or before it, in which the link has
    /// something free; size() and -1 if there is none. Amortised nearly O(1).
    SlotIndex first_free(LinkIndex link, SlotIndex from) noexcept;
    SlotIndex last_free(LinkIndex link, SlotIndex from) noexcept;
    SlotIndex size() const noexcept { return slots_; }

   private:
    using Skips = std::vector<std::int32_t>;  // union-find: a full slot names the next to look at
    void note_full(ResourceIndex resource, SlotIndex slot) noexcept;

    const Machine* machine_;
    SlotIndex slots_;
    std::vector<std::vector<double>> free_;  // bytes, by resource and slot
    std::vector<std::vector<LinkIndex>> links_by_resource_;
    std::vector<Skips> later_;    // by link: at s, s or a later slot
    std::vector<Skips> earlier_;  // by link: at s + 1, s + 1 or an earlier one
};

}  // namespace frostline
