// Cuts the cyclic step into windows, in each of which one thing is scarce: time to compute, or what
// crosses one cut between tiers in one direction.
//
// Rule: windows do not overlap, so their times add up, and the prices made of them obey what every
// set of prices must: in no phase do they charge more than its time.
#pragma once

#include "migration/planning/bound_prices.h"
#include "migration/planning/tensor_versions.h"
#include "migration/planning/traffic_sweep.h"

#include <cstdint>
#include <span>
#include <vector>

namespace frostline {

/// A row of kernels whose time is what the traffic over one cut takes.
struct TrafficWindow {
    std::uint32_t first = 0;    ///< kernel
    std::uint32_t kernels = 0;  ///< at most one step; the row may wrap around its end
    std::uint32_t cut = 0;
    Direction direction = Direction::in;
    double compute_ns = 0;
    double traffic_ns = 0;
};

/// What windows are looked for in. All of it outlives the search.
struct WindowProblem {
    const TensorVersions& versions;
    std::span<const TierCut> cuts;
    std::span<const double> kernel_ns;  ///< by kernel
};

/// Windows whose traffic outlasts their kernels by as much as was found, together. They begin and
/// end at the kernels in `bounds` (ascending, not empty). Deterministic. May throw std::bad_alloc.
std::vector<TrafficWindow> find_windows(const WindowProblem& problem,
                                        std::span<const std::uint32_t> bounds);

/// Prices, by cut, that prove about as much as the windows claim. May throw std::bad_alloc.
std::vector<CutPrices> window_prices(const WindowProblem& problem,
                                     std::span<const TrafficWindow> windows);

}  // namespace frostline
