// Decisions that make room in the fastest tier, whichever tensors a policy chooses to give up. What
// was decided is taken into account at once, so that no tier is promised more than it can hold.
#pragma once

#include "migration/policy.h"

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace frostline {

/// For one call of decide(): adds to its decisions. Not thread-safe.
class Eviction {
   public:
    /// Both are referred to. `decisions` are those made so far, none of which took room.
    Eviction(const PolicyView& view, std::vector<Decision>& decisions);

    /// What tier 0 will have free once all that was decided and all that is leaving has left.
    std::uint64_t free_bytes() const noexcept { return free_bytes_; }

    /// Moves a tensor of tier 0 below: to where a good copy lies, or else to the tier with room
    /// that will bring it back soonest, or else to one where spare copies can give way. False: it
    /// may not move, or no tier has room.
    bool evict(const TensorRecord& tensor);
    /// The same to one tier, and only if that has room, or a good copy.
    bool evict_to(const TensorRecord& tensor, TierId tier);

   private:
    bool fits(std::size_t tier, std::uint64_t bytes) const;
    bool has_copy(const TensorRecord& tensor, TierId tier) const;
    bool can_take(const TensorRecord& tensor, std::size_t tier) const;
    std::optional<std::size_t> soonest_back(std::uint64_t bytes) const;
    std::optional<std::size_t> place(const TensorRecord& tensor);
    bool drop_spare_copies(std::size_t tier, std::uint64_t bytes);
    void decide_move(const TensorRecord& tensor, std::size_t tier);

    const PolicyView& view_;
    std::vector<Decision>& decisions_;
    std::uint64_t free_bytes_ = 0;
    std::array<std::uint64_t, kMaxTiers> room_bytes_{};  ///< left in each tier
};

}  // namespace frostline
