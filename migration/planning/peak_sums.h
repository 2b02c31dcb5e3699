// The bytes beside one kernel that a window around it forces to cross: out before its end, or in
// after it, unless they stay.
//
// Rule: as sweeps do, this only proposes; bound_prices.h proves.
#pragma once

#include "migration/planning/tensor_versions.h"

#include <cstdint>
#include <span>
#include <vector>

namespace frostline {

/// Sums for windows that begin and end at given kernels. What it is made of outlives it. Not
/// thread-safe. Budget of gather(): O(intervals + bounds^2).
class PeakSums {
   public:
    /// `bounds`: kernels in ascending order. May throw std::bad_alloc.
    PeakSums(const TensorVersions& versions, std::span<const std::uint32_t> bounds);

    /// Takes bounds[peak] as the kernel that the windows surround.
    void gather(std::size_t peak);

    /// The bytes beside the peak that were written since the bound `before` places earlier, or are
    /// used up to the bound `after` places later; the two together are at most all bounds.
    double bytes(std::size_t before, std::size_t after) const {
        return all_bytes_ - spared_[before * (bounds_.size() + 2) + after];
    }

   private:
    std::uint32_t ago(std::size_t peak, std::size_t places) const;
    std::size_t places_before(std::size_t peak, std::uint32_t kernels) const;
    std::size_t places_after(std::size_t peak, std::uint32_t kernels) const;

    const TensorVersions& versions_;
    std::span<const std::uint32_t> bounds_;
    double all_bytes_ = 0;
    std::vector<double> spared_;  ///< bytes that neither part of the window reaches
};

}  // namespace frostline
