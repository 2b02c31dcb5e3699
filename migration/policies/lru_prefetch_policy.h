// Least recently used eviction, with the next kernels' tensors fetched ahead and kept. Some room is
// kept free for them, and what lies within the window of what is fetched is the last to leave.
#pragma once

#include "migration/planning/future_uses.h"
#include "migration/policy.h"

#include <cstdint>
#include <memory>
#include <utility>

namespace frostline {

class LruPrefetchPolicy final : public Policy {
   public:
    /// The part of tier 0 that eviction tries to keep free: 1 / kHeadroomDivisor.
    static constexpr std::uint64_t kHeadroomDivisor = 8;
    /// The window is at most 1 / kWindowDivisor of tier 0. Were all of it kept for what comes next,
    /// nothing could leave before somebody waits.
    static constexpr std::uint64_t kWindowDivisor = 2;

    explicit LruPrefetchPolicy(std::shared_ptr<const FutureUses> uses) : uses_(std::move(uses)) {}

    std::string_view name() const noexcept override { return "lru-prefetch"; }
    /// Without a known step it is on-demand LRU with headroom.
    void decide(const PolicyView& view, const PolicyEvent& event,
                std::vector<Decision>& decisions) const override;

   private:
    std::uint64_t horizon(const PolicyView& view) const;
    void evict(const PolicyView& view, std::uint64_t wanted_bytes,
               std::vector<Decision>& decisions) const;
    void prefetch(const PolicyView& view, std::vector<Decision>& decisions) const;

    std::shared_ptr<const FutureUses> uses_;
};

}  // namespace frostline
