// Where every byte of every tensor lies while a schedule is replayed. No tier holds more than its
// capacity, and every byte of a living tensor is valid in some tier: what would break that is
// objected to.
#pragma once

#include "migration/planning/machine.h"
#include "migration/planning/objection.h"
#include "migration/planning/schedule.h"
#include "migration/planning/trace.h"
#include "tiers/range_set.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

namespace frostline {

/// What acts do to memory, told one after the other in the order in which they happen. Acts name
/// tensors, tiers and links that exist, and ranges within their tensor. After an objection the
/// object means nothing. Not thread-safe; trace and machine outlive it. Any call may throw
/// std::bad_alloc.
///
/// Budget: amortised O(log n) for each act and use, n being the ranges of that tensor. Ranges of
/// one state are kept joined, so one act makes a few new ones at most, and whoever walks over many
/// has them joined or gone afterwards.
class ReplayedMemory {
   public:
    ReplayedMemory(const Trace& trace, const Machine& machine);

    /// Before the first step: a part of a weight lies in a tier.
    Objection place(const ScheduledPlacement& placement);
    /// After the last place(): every weight is whole.
    Objection check_weights() const;

    /// `link` is the place of the link in Machine::links.
    Objection start_move(const ScheduledMove& move, std::size_t link);
    void end_move(const ScheduledMove& move, std::size_t link);
    Objection drop(const ScheduledDrop& drop);
    Objection start_kernel(KernelIndex kernel);
    Objection end_kernel(KernelIndex kernel);

    /// What each tier holds now, and the most that it held.
    const std::vector<std::uint64_t>& used_bytes() const noexcept { return used_bytes_; }
    const std::vector<std::uint64_t>& peak_bytes() const noexcept { return peak_bytes_; }

   private:
    enum class Use : std::uint8_t { none, read, written };

    struct Tensor {
        bool is_alive = false;
        Use use = Use::none;  ///< by the kernel that runs
        std::uint32_t moves_under_way = 0;
    };

    std::uint64_t id(TensorIndex tensor) const noexcept { return trace_->tensors()[tensor].id; }
    const std::string& tier_name(TierIndex tier) const noexcept {
        return machine_->tiers[tier].name;
    }
    RangeSet& valid(TensorIndex tensor, TierIndex tier) noexcept {
        return valid_[tensor * machine_->tiers.size() + tier];
    }
    const RangeSet& valid(TensorIndex tensor, TierIndex tier) const noexcept {
        return valid_[tensor * machine_->tiers.size() + tier];
    }
    std::uint64_t route(TensorIndex tensor, std::size_t link) const noexcept {
        return tensor * machine_->links.size() + link;
    }
    bool is_under_way(TensorIndex tensor, std::size_t link, const Range& range) const noexcept;
    bool is_arriving(TensorIndex tensor, TierIndex tier, const Range& range) const noexcept;
    bool is_being_read(TensorIndex tensor, TierIndex tier, const Range& range) const noexcept;
    /// Whether each byte is valid somewhere, `except` not counted.
    bool is_covered(TensorIndex tensor, const Range& range,
                    std::optional<TierIndex> except) const noexcept;
    Objection take_room(TensorIndex tensor, TierIndex tier, std::uint64_t bytes);
    void give_up(TensorIndex tensor, TierIndex tier) noexcept;
    Objection use(KernelIndex kernel, TensorIndex tensor);
    Objection write(KernelIndex kernel, TensorIndex tensor);
    Objection die(KernelIndex kernel, TensorIndex tensor);

    const Trace* trace_;
    const Machine* machine_;
    std::vector<Tensor> tensors_;
    std::vector<RangeSet> valid_;  ///< by tensor and tier
    /// By tensor and link, what is being copied. Room is held for it, and it is not valid yet.
    std::unordered_map<std::uint64_t, RangeSet> under_way_;
    std::vector<std::uint64_t> used_bytes_;  ///< by tier
    std::vector<std::uint64_t> peak_bytes_;  ///< by tier
};

}  // namespace frostline
