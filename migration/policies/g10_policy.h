// Follows the trips that G10's method has planned: each tensor leaves at the end of the kernel that
// it is idle after, and is fetched from the kernel on at which its fetch has to begin. What the
// plan leaves unsolved is solved under pressure, by what is used again last.
#pragma once

#include "migration/planning/future_uses.h"
#include "migration/planning/machine.h"
#include "migration/policies/g10_plan.h"
#include "migration/policy.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace frostline {

class G10Policy final : public Policy {
   public:
    /// `tiers` as tiers_by_speed() gives them. May throw std::bad_alloc.
    G10Policy(std::shared_ptr<const FutureUses> uses, const Machine& machine,
              const std::vector<TierIndex>& tiers);

    std::string_view name() const noexcept override { return "g10"; }
    /// Without a known step only pressure is answered, by what is least recently used.
    void decide(const PolicyView& view, const PolicyEvent& event,
                std::vector<Decision>& decisions) const override;

   private:
    void leave(const PolicyView& view, const TensorRecord& settled,
               std::vector<Decision>& decisions) const;
    void fetch(const PolicyView& view, std::vector<Decision>& decisions) const;

    std::shared_ptr<const FutureUses> uses_;
    std::vector<G10Trip> trips_;
    std::vector<std::vector<TensorIndex>> fetched_;  ///< by kernel: whose fetch is due
};

}  // namespace frostline
