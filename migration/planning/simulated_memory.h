// Where a trace's tensors lie on a simulated machine: the tensor table and residency words of the
// live engine, with tiers that are only counted. Whatever changes is noted in the schedule.
//
// Rule: used bytes never exceed a tier's size; a tensor that is pinned neither leaves nor loses its
// bytes; after each call the schedule has what the memory has done.
#pragma once

#include "allocator/tensor_table.h"
#include "migration/planning/machine.h"
#include "migration/planning/schedule.h"
#include "migration/planning/simulated_links.h"
#include "migration/planning/trace.h"
#include "migration/policy.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace frostline {

/// Not thread-safe; may throw std::bad_alloc.
class SimulatedMemory {
   public:
    enum class MoveStart : std::uint8_t {
        done,     ///< it is there already, or was by a copy that was still good
        started,  ///< its end is for finish()
        no_room,
        refused,  ///< pinned, moving, or there is no such link
    };

    /// All are referred to; `tiers` as tiers_by_speed() gave them.
    SimulatedMemory(const Trace& trace, const Machine& machine, std::vector<TierIndex> tiers,
                    SimulatedLinks& links, Schedule& schedule);

    /// Puts the weights where they lie before the first step: on the device as long as there is
    /// room, in the order of their first use, then below. Errors: no_space.
    Result<void> place_weights();

    /// The tensor's record; nullptr while it does not live.
    const TensorRecord* record(TensorIndex tensor) const { return records_[tensor]; }
    bool resident(TensorIndex tensor) const;
    std::size_t tiers() const noexcept { return views_.size(); }
    const TierView& view(TierId tier) const { return views_[index_of(tier)]; }

    /// A new tensor on the device, if that has room, pinned as by pin().
    Result<bool> create(TensorIndex tensor);
    /// Holds a resident tensor. For writing, copies elsewhere are given up, and one under way.
    void pin(TensorIndex tensor, Access access, std::uint64_t now_ns);
    void unpin(TensorIndex tensor);
    /// Ends a tensor's life, which nobody pins; a copy under way ends with it.
    void erase(TensorIndex tensor);

    MoveStart move(TensorId tensor, TierId to, SimulatedLinks::Urgency urgency,
                   std::uint64_t now_ns);
    /// Gives up a copy that is not home; false if that is impossible now.
    bool drop_copy(TensorId tensor, TierId tier, std::uint64_t now_ns);
    void finish(const EndedCopy& copy);

    /// What a policy sees; good until the next change.
    PolicyView view(StepView& step, std::uint32_t kernel, std::uint64_t prefetch_bytes) const;

   private:
    static constexpr TierId kDevice{0};

    TierView describe(TierId tier) const;
    const MachineLink* link(TierId from, TierId to) const;
    TierId tier_id(TierIndex tier) const;
    TensorIndex tensor_of(const TensorRecord& record) const { return by_slot_[record.slot]; }
    TensorRange whole(TensorIndex tensor) const;
    TierView& tier(TierId id) { return views_[index_of(id)]; }
    Result<void> add(TensorIndex tensor, TierId tier);
    void put_copy(TensorRecord& record, TierId tier);
    void release_copy(TensorRecord& record, TierId tier);
    void give_up_copy(TensorRecord& record, TierId tier, std::uint64_t now_ns);
    void cancel_move(TensorRecord& record);
    void change_home(TensorRecord& record, TierId from, TierId to, std::uint64_t now_ns);

    const Trace& trace_;
    const Machine& machine_;
    std::vector<TierIndex> tiers_;
    SimulatedLinks& links_;
    Schedule& schedule_;
    TensorTable table_;
    std::vector<TensorRecord*> records_;  ///< by tensor
    std::vector<std::uint32_t> by_slot_;  ///< which tensor
    std::vector<TierView> views_;         ///< by TierId
};

}  // namespace frostline
