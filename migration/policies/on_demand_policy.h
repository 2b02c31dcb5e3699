// Moves nothing before somebody waits for it: what was used longest ago leaves when room is asked
// for, just enough of it, and nothing is fetched ahead. The baseline that any overlap of copies and
// kernels is measured against.
#pragma once

#include "migration/policy.h"

namespace frostline {

class OnDemandPolicy final : public Policy {
   public:
    std::string_view name() const noexcept override { return "lru-on-demand"; }
    void decide(const PolicyView& view, const PolicyEvent& event,
                std::vector<Decision>& decisions) const override;
};

}  // namespace frostline
