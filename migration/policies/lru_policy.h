// Evicts what was used longest ago, to the lower tier with room that will bring it back soonest,
// early enough to keep some room free; fetches what was born just before the tensor in use, because
// backward passes run in the reverse order of births.
#pragma once

#include "migration/policy.h"

namespace frostline {

class LruPolicy final : public Policy {
   public:
    /// The part of tier 0 that eviction tries to keep free: 1 / kHeadroomDivisor. Room that is free
    /// before it is asked for saves the asker a wait.
    static constexpr std::uint64_t kHeadroomDivisor = 8;

    std::string_view name() const noexcept override { return "lru"; }
    void decide(const PolicyView& view, const PolicyEvent& event,
                std::vector<Decision>& decisions) const override;
};

}  // namespace frostline
