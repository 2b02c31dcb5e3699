// Gives up what is used again last, when somebody waits for room, and fetches nothing ahead: the
// fewest fetches that whole tensors allow, with no overlap of copies and kernels.
#pragma once

#include "migration/planning/future_uses.h"
#include "migration/policy.h"

#include <cstdint>
#include <memory>
#include <utility>

namespace frostline {

/// Adds evictions until `bytes` are free in tier 0, of what is used again last. Tensors that the
/// trace does not know are taken to be used never again, the least recently used first.
void evict_furthest_use(const FutureUses& uses, const PolicyView& view, std::uint64_t bytes,
                        std::vector<Decision>& decisions);

class BeladyPolicy final : public Policy {
   public:
    explicit BeladyPolicy(std::shared_ptr<const FutureUses> uses) : uses_(std::move(uses)) {}

    std::string_view name() const noexcept override { return "belady"; }
    void decide(const PolicyView& view, const PolicyEvent& event,
                std::vector<Decision>& decisions) const override;

   private:
    std::shared_ptr<const FutureUses> uses_;
};

}  // namespace frostline
