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

enum class WindowKind : std::uint8_t {
    in,
    out,
    around_peak,  ///< outwards up to the end of a kernel, inwards from there on
};

/// From the end of one kernel to the start of another, the time that the traffic over one cut
/// takes.
struct TrafficWindow {
    std::uint32_t first = 0;    ///< the kernel at whose end it begins
    std::uint32_t kernels = 0;  ///< from there to that at whose start it ends; at most one step
    std::uint32_t cut = 0;
    WindowKind kind = WindowKind::in;
    std::uint32_t peak = 0;  ///< if there is one: after how many kernels
    double compute_ns = 0;
    double traffic_ns = 0;
};

/// What windows are looked for in. All of it outlives the search.
struct WindowProblem {
    const TensorVersions& versions;
    std::span<const TierCut> cuts;
    std::span<const double> kernel_ns;  ///< by kernel
};

/// The kernels at which windows may begin and end, in ascending order; at least one. Those that
/// begin at another than each long_stride-th are as much shorter than a step: what is scarce for
/// long need not be cut so precisely.
struct WindowBounds {
    std::vector<std::uint32_t> kernels;
    std::vector<std::uint32_t> peaks;  ///< those of them that may be a peak
    std::uint32_t long_stride = 1;
};

/// Windows whose traffic outlasts their kernels by as much as was found, together. Deterministic.
/// May throw std::bad_alloc. Takes, for each bound, two sweeps as long as its windows may be.
std::vector<TrafficWindow> find_windows(const WindowProblem& problem, const WindowBounds& bounds);

/// Prices, by cut, that prove about as much as the windows claim. May throw std::bad_alloc.
std::vector<CutPrices> window_prices(const WindowProblem& problem,
                                     std::span<const TrafficWindow> windows);

}  // namespace frostline
