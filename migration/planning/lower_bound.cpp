// Windows are looked for coarsely first and then more finely around their ends.
#include "migration/planning/lower_bound.h"

#include "migration/planning/bound_prices.h"
#include "migration/planning/bound_windows.h"
#include "migration/planning/tensor_versions.h"
#include "migration/planning/tier_cuts.h"

#include <algorithm>
#include <cstddef>
#include <new>
#include <set>

namespace frostline {
namespace {

struct Shortage {
    KernelIndex kernel = 0;
    std::uint64_t missing_bytes = 0;
};

/// Where the most is missing, if anything is.
Shortage shortage(std::span<const std::uint64_t> wanted_bytes, std::uint64_t room_bytes) {
    const auto most = std::max_element(wanted_bytes.begin(), wanted_bytes.end());
    if (most == wanted_bytes.end() || *most <= room_bytes) return {};
    return {static_cast<KernelIndex>(most - wanted_bytes.begin()), *most - room_bytes};
}

double gain_ns(std::span<const TrafficWindow> windows) {
    double sum_ns = 0;
    for (const TrafficWindow& each : windows) sum_ns += each.traffic_ns - each.compute_ns;
    return sum_ns;
}

/// Kernels `spacing` apart, and of each `long_stride` of them the kernel at which most lives.
WindowBounds first_bounds(std::span<const std::uint64_t> live_bytes, std::uint32_t spacing,
                          std::uint32_t long_stride) {
    std::set<std::uint32_t> kernels;
    for (std::size_t each = 0; each < live_bytes.size(); each += spacing) {
        kernels.insert(static_cast<std::uint32_t>(each));
    }
    WindowBounds bounds{.kernels = {}, .peaks = {}, .long_stride = long_stride};
    const std::size_t stretch = std::size_t{spacing} * long_stride;
    for (std::size_t each = 0; each < live_bytes.size(); each += stretch) {
        const auto some = live_bytes.subspan(each, std::min(stretch, live_bytes.size() - each));
        const auto most = std::max_element(some.begin(), some.end()) - some.begin();
        bounds.peaks.push_back(static_cast<std::uint32_t>(each + static_cast<std::size_t>(most)));
    }
    kernels.insert(bounds.peaks.begin(), bounds.peaks.end());
    bounds.kernels.assign(kernels.begin(), kernels.end());
    return bounds;
}

/// Looks everywhere first and then more finely around the ends of what was found, as long as the
/// work, in kernels swept over, stays within a budget: about half a second, or a few for long
/// traces.
std::vector<TrafficWindow> search_windows(const WindowProblem& problem) {
    constexpr std::uint32_t kMostBounds = 384;
    constexpr std::uint32_t kFewestBounds = 48;
    constexpr std::uint32_t kBoundKernels = 1U << 20;
    constexpr std::uint32_t kLongStride = 8;
    const auto kernels = static_cast<std::uint32_t>(problem.kernel_ns.size());
    const std::uint32_t most = std::clamp(kBoundKernels / kernels, kFewestBounds, kMostBounds);
    std::uint32_t spacing = (kernels + most - 1) / most;
    WindowBounds bounds = first_bounds(problem.versions.live_bytes, spacing, kLongStride);
    std::vector<TrafficWindow> best = find_windows(problem, bounds);
    bounds.long_stride = 1;
    std::uint64_t budget = 4 * kBoundKernels + 8 * std::uint64_t{kernels};
    spacing *= kLongStride;
    while (!best.empty()) {
        std::set<std::uint32_t> finer;
        for (const TrafficWindow& each : best) {
            for (const std::uint32_t end :
                 {each.first, each.first + each.peak, each.first + each.kernels}) {
                for (const std::uint32_t off : {0U, spacing, kernels - spacing % kernels}) {
                    finer.insert((end + off) % kernels);
                }
            }
        }
        const std::uint64_t work = finer.size() * problem.cuts.size() * std::uint64_t{kernels};
        if (work > budget) break;
        budget -= work;
        bounds.kernels.assign(finer.begin(), finer.end());
        bounds.peaks = bounds.kernels;
        std::vector<TrafficWindow> found = find_windows(problem, bounds);
        if (gain_ns(found) > gain_ns(best)) {
            best = std::move(found);
        } else if (spacing > 1) {
            spacing /= 2;
        } else {
            break;
        }
    }
    return best;
}

LowerBound bound(const Trace& trace, const Machine& machine) {
    LowerBound result;
    const TensorVersions versions = tensor_versions(trace);
    const std::uint64_t device_bytes = machine.tiers[machine.device].size_bytes;
    std::uint64_t all_bytes = 0;
    for (const MachineTier& tier : machine.tiers) {
        all_bytes += std::min(tier.size_bytes, ~all_bytes);
    }
    Shortage missing = shortage(versions.used_bytes, device_bytes);
    result.device_is_short = missing.missing_bytes > 0;
    if (!result.device_is_short) missing = shortage(versions.live_bytes, all_bytes);
    result.kernel = missing.kernel;
    result.missing_bytes = missing.missing_bytes;
    result.feasible = missing.missing_bytes == 0;

    std::vector<double> kernel_ns;
    for (const TraceKernel& each : trace.kernels()) {
        kernel_ns.push_back(static_cast<double>(each.duration_ns));
    }
    result.compute_ns = static_cast<double>(trace.ideal_ns());
    result.step_ns = result.compute_ns;
    result.repeating_step_ns = result.compute_ns;
    if (!result.feasible) return result;

    const std::uint64_t peak_bytes =
        *std::max_element(versions.live_bytes.begin(), versions.live_bytes.end());
    const std::vector<TierCut> cuts = tier_cuts(machine, peak_bytes);
    if (cuts.empty()) return result;
    const WindowProblem problem{versions, cuts, kernel_ns};
    const std::vector<TrafficWindow> windows = search_windows(problem);
    const std::vector<CutPrices> prices = window_prices(problem, windows);
    double judged_ns = 0;
    double repeating_ns = 0;
    for (std::uint32_t cut = 0; cut < cuts.size(); ++cut) {
        const CutValue value = CutPricing(versions, cuts[cut]).value(prices[cut]);
        judged_ns += value.judged_ns;
        repeating_ns += value.repeating_ns;
        for (std::uint32_t phase = 1; phase < versions.points; phase += 2) {
            const double charged = prices[cut].in[phase] * cuts[cut].in_bytes_per_ns +
                                   prices[cut].out[phase] * cuts[cut].out_bytes_per_ns;
            judged_ns -= charged * kernel_ns[phase / 2];
            repeating_ns -= charged * kernel_ns[phase / 2];
        }
    }
    result.step_ns = std::max(result.step_ns, result.compute_ns + judged_ns);
    result.repeating_step_ns = std::max(result.step_ns, result.compute_ns + repeating_ns);
    for (const TrafficWindow& each : windows) {
        result.windows.push_back(
            {.first = each.first,
             .kernels = each.kernels,
             .traffic = each.kind == WindowKind::in    ? BoundTraffic::in
                        : each.kind == WindowKind::out ? BoundTraffic::out
                                                       : BoundTraffic::out_then_in,
             .peak = (each.first + each.peak) % static_cast<KernelIndex>(kernel_ns.size()),
             .compute_ns = each.compute_ns,
             .traffic_ns = each.traffic_ns,
             .room_bytes = cuts[each.cut].room_bytes});
    }
    std::stable_sort(result.windows.begin(), result.windows.end(),
                     [](const BoundWindow& left, const BoundWindow& right) {
                         return left.traffic_ns - left.compute_ns >
                                right.traffic_ns - right.compute_ns;
                     });
    return result;
}

}  // namespace

Result<LowerBound> lower_bound(const Trace& trace, const Machine& machine) noexcept {
    try {
        return bound(trace, machine);
    } catch (const std::bad_alloc&) {
        return Error(Errc::out_of_memory, 0, "no memory for the lower bound of {} kernels",
                     trace.kernels().size());
    }
}

}  // namespace frostline
