// The greedy pass behind plan_transfers(). It goes through two steps in a row and looks ahead into
// a third: the second step's transfers are those of every step.
#pragma once

#include "migration/planning/occupancy.h"
#include "migration/planning/transfer_plan.h"

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

namespace frostline {

/// Used once: plan(). Any call may throw std::bad_alloc. What it is given outlives it.
class TransferPlanner {
   public:
    TransferPlanner(const Trace& trace, const Machine& machine, const TensorUses& uses,
                    std::span<const Route> routes, const PlanTimeline& timeline,
                    const TransferSettings& settings);
    TransferPlan plan();

   private:
    static constexpr SlotIndex kNever = INT64_MAX / 4;
    static constexpr std::uint32_t kSteps = 3;

    // A clean copy below of the bytes from where the one before it ends.
    struct CleanCopy {
        std::int64_t end = 0;
        std::uint32_t route = 0;
    };
    // Bytes leave from a tensor's start on: what is away is a prefix.
    struct Tensor {
        std::int64_t resident = 0;
        SlotIndex next_use = kNever;
        SlotIndex void_at = kNever;  // when its copies below are worth nothing: a write, or its end
        SlotIndex writable_from = 0;  // the first slot in which it can be copied out as it is
        std::uint32_t use = 0;        // which one of its uses is the next
        GapNumber gap = 0;
        GapNumber out_gap = 0;  // the last one that was booked a way out, and a way in
        GapNumber in_gap = 0;
        std::vector<CleanCopy> clean;

        std::int64_t clean_end() const noexcept { return clean.empty() ? 0 : clean.back().end; }
    };
    struct Booking {
        SlotIndex slot = 0;
        std::int64_t bytes = 0;
    };
    // What is booked for one way, out or in.
    struct Way {
        LinkIndex link = 0;
        const std::vector<Booking>& found;
        std::vector<std::pair<SlotIndex, PlannedCopy>>& copies;
        GapNumber& booked_gap;  // the last one of the tensor's
    };
    struct Eviction {
        TensorIndex tensor = 0;
        SlotIndex slot = 0;       // away from here on (forced) or from the next
        SlotIndex needed_at = 0;  // must be away there
        bool forced = false;

        SlotIndex away_from() const noexcept { return forced ? slot : slot + 1; }
    };

    void place_weights();
    std::vector<std::int64_t> living_bytes() const;
    void begin_kernel(KernelIndex kernel, SlotIndex slot);
    void end_kernel(KernelIndex kernel, std::int64_t step, SlotIndex slot);
    void go_idle(TensorIndex tensor, std::int64_t step, SlotIndex slot);
    void relieve_now(SlotIndex slot);
    void relieve_ahead(SlotIndex slot);
    bool relieve(SlotIndex slot, SlotIndex needed_at);

    std::int64_t evict(const Eviction& eviction, std::int64_t bytes);
    std::int64_t evict_dirty(const Eviction& eviction, std::int64_t bytes);
    std::int64_t evict_over(const Eviction& eviction, std::uint32_t route, std::int64_t bytes,
                            bool dirty);
    std::int64_t find_outs(const Eviction& eviction, LinkIndex link, std::int64_t bytes);
    std::int64_t find_ins(const Eviction& eviction, LinkIndex link, std::int64_t bytes);
    std::int64_t room(std::uint32_t route, SlotIndex from, SlotIndex to) const noexcept;
    void book_outs(const Eviction& eviction, std::uint32_t route, std::int64_t bytes);
    void book_ins(const Eviction& eviction, std::uint32_t route, std::int64_t bytes);
    SlotIndex copies_until(const Tensor& tensor) const noexcept;
    void book(const Eviction& eviction, const Way& way, std::int64_t bytes);
    std::int64_t latency_bytes(LinkIndex link) const noexcept;
    bool goes_slow_first(const Eviction& eviction) const noexcept;
    std::int64_t offset(TensorIndex tensor) const noexcept;
    bool can_be_away(TensorIndex tensor, SlotIndex slot, SlotIndex needed_at) noexcept;

    void advance_ins();
    template <class Planned>
    std::vector<Planned> of_second_step(std::vector<std::pair<SlotIndex, Planned>>& planned) const;

    const Trace& trace_;
    const Machine& machine_;
    const TensorUses& uses_;
    const std::span<const Route> routes_;
    const PlanTimeline& timeline_;
    const TransferSettings settings_;
    const std::int64_t device_bytes_;
    std::vector<Tensor> tensors_;
    Occupancy device_;
    std::vector<Occupancy> below_;  // by route
    LinkCalendar links_;
    std::set<std::pair<SlotIndex, TensorIndex>> idle_;  // what has bytes on the device, by next use
    GapNumber gaps_ = 0;
    bool lacked_room_ = false;
    std::vector<Booking> found_outs_;  // by the last find_outs() and find_ins()
    std::vector<Booking> found_ins_;
    // With the slot in which each was decided.
    std::vector<std::pair<SlotIndex, PlannedCopy>> outs_;
    std::vector<std::pair<SlotIndex, PlannedCopy>> ins_;
    std::vector<std::pair<SlotIndex, PlannedDrop>> drops_;
    std::vector<StandingCopy> standing_;
};

}  // namespace frostline
