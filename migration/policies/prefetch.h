// Decisions that fetch tensors into room that is free already: nothing is evicted for a fetch, and
// no room is promised twice.
#pragma once

#include "migration/policy.h"

#include <cstdint>
#include <vector>

namespace frostline {

/// For one call of decide(): adds to its decisions. Not thread-safe.
class Prefetch {
   public:
    /// Both are referred to.
    Prefetch(const PolicyView& view, std::vector<Decision>& decisions)
        : view_(view), decisions_(decisions), free_bytes_(view.tiers[0].free_bytes()) {}

    /// Fetches the tensor if it is elsewhere. False: there is no room for it.
    bool fetch(const TensorRecord& tensor) {
        const ResidencyState state = tensor.residency.load();
        if (state.home == TierId{0} || state.moving || state.released) return true;
        const std::uint64_t charged = view_.tiers[0].charged_bytes(tensor.size_bytes);
        if (charged > free_bytes_) return false;
        free_bytes_ -= charged;
        decisions_.push_back({Decision::Action::move, tensor.id(), TierId{0}});
        return true;
    }

   private:
    const PolicyView& view_;
    std::vector<Decision>& decisions_;
    std::uint64_t free_bytes_;
};

}  // namespace frostline
