// Sweeps start at every bound once; where to cut is then a shortest path, taken over all first cuts
// because the step is a cycle.
#include "migration/planning/bound_windows.h"

#include "migration/planning/peak_sums.h"

#include <algorithm>
#include <cstddef>

namespace frostline {
namespace {

constexpr std::size_t kFirstCuts = 16;

/// Around a peak one price holds for both directions and for room; of different speeds it is the
/// higher that no phase may be charged more than its time for.
double peak_price(const TierCut& cut) {
    return 1 / std::max(cut.in_bytes_per_ns, cut.out_bytes_per_ns);
}

/// The best use of kernels [bounds[i], bounds[i + steps]): gain over computing alone.
struct Edge {
    double gain_ns = 0;
    std::uint32_t cut = 0;
    WindowKind kind = WindowKind::in;
    std::uint32_t peak = 0;
    double compute_ns = 0;
    double traffic_ns = 0;
};

class Partition {
   public:
    Partition(const WindowProblem& problem, const WindowBounds& bounds)
        : problem_(problem),
          bounds_(bounds.kernels),
          peaks_(bounds.peaks),
          long_stride_(bounds.long_stride),
          edges_(bounds_.size() * bounds_.size()) {
        const std::size_t all = problem.kernel_ns.size();
        computed_before_.assign(2 * all + 1, 0);
        for (std::size_t i = 0; i < 2 * all; ++i) {
            computed_before_[i + 1] = computed_before_[i] + problem.kernel_ns[i % all];
        }
    }

    void weigh() {
        for (std::uint32_t cut = 0; cut < problem_.cuts.size(); ++cut) {
            TrafficSweep sweep(problem_.versions, problem_.cuts[cut]);
            for (std::size_t from = 0; from < bounds_.size(); ++from) {
                weigh(from, cut, Direction::in, sweep);
                weigh(from, cut, Direction::out, sweep);
            }
            PeakSums sums(problem_.versions, bounds_);
            for (std::size_t peak = 0; peak < bounds_.size(); ++peak) {
                if (!std::binary_search(peaks_.begin(), peaks_.end(), bounds_[peak])) continue;
                sums.gather(peak);
                weigh_peak(peak, cut, sums);
            }
        }
    }

    std::vector<TrafficWindow> best() const {
        Path path;
        const std::size_t stride = (bounds_.size() + kFirstCuts - 1) / kFirstCuts;
        for (std::size_t start = 0; start < bounds_.size(); start += stride) improve(path, start);
        // The cycle was cut where a longer window may lie: cut it where windows meet.
        const std::vector<std::size_t> meet = path.cuts;
        for (const std::size_t start : meet) improve(path, start % bounds_.size());
        std::vector<TrafficWindow> windows;
        for (std::size_t i = 0; i + 1 < path.cuts.size(); ++i) {
            const std::size_t from = path.cuts[i];
            const std::size_t steps = path.cuts[i + 1] - from;
            const Edge& each = edge(from, steps);
            if (each.gain_ns <= 0) continue;
            windows.push_back({.first = bounds_[from % bounds_.size()],
                               .kernels = kernels_between(from, steps),
                               .cut = each.cut,
                               .kind = each.kind,
                               .peak = each.peak,
                               .compute_ns = each.compute_ns,
                               .traffic_ns = each.traffic_ns});
        }
        return windows;
    }

   private:
    /// Where the cycle is cut, from one bound to the same a step later.
    struct Path {
        double gain_ns = 0;
        std::vector<std::size_t> cuts;
    };

    /// Takes the best path that cuts at bound `start`, if it is better.
    void improve(Path& best, std::size_t start) const {
        std::vector<double> gain(bounds_.size() + 1, -1);
        std::vector<std::size_t> previous(bounds_.size() + 1);
        gain[0] = 0;
        for (std::size_t to = 1; to <= bounds_.size(); ++to) {
            for (std::size_t from = 0; from < to; ++from) {
                const double sum = gain[from] + edge(start + from, to - from).gain_ns;
                if (sum > gain[to]) gain[to] = sum, previous[to] = from;
            }
        }
        if (gain.back() <= best.gain_ns) return;
        best.gain_ns = gain.back();
        best.cuts.assign(1, start + bounds_.size());
        for (std::size_t to = bounds_.size(); to > 0; to = previous[to]) {
            best.cuts.push_back(start + previous[to]);
        }
        std::reverse(best.cuts.begin(), best.cuts.end());
    }

    const Edge& edge(std::size_t from, std::size_t steps) const {
        return edges_[(from % bounds_.size()) * bounds_.size() + steps - 1];
    }
    /// Kernels from one bound up to another, `steps` further on; a whole step for all of them.
    std::uint32_t kernels_between(std::size_t from, std::size_t steps) const {
        const auto all = static_cast<std::uint32_t>(problem_.kernel_ns.size());
        const std::uint32_t first = bounds_[from % bounds_.size()];
        const std::uint32_t last = bounds_[(from + steps) % bounds_.size()];
        return steps == bounds_.size() ? all : (last + all - first) % all;
    }

    void weigh(std::size_t from, std::uint32_t cut, Direction direction, TrafficSweep& sweep) {
        const auto all = static_cast<std::uint32_t>(problem_.kernel_ns.size());
        const std::uint32_t reach =
            from % long_stride_ == 0 ? all : (all + long_stride_ - 1) / long_stride_;
        const TierCut& at = problem_.cuts[cut];
        const double rate = direction == Direction::in ? at.in_bytes_per_ns : at.out_bytes_per_ns;
        // What is born in the first kernel may leave in the window; what that kernel uses need not
        // come back.
        const std::uint32_t skipped = direction == Direction::in ? 1 : 0;
        const std::span<const double> crossed =
            sweep.sweep(direction, bounds_[from] + skipped, reach + 1 - skipped);
        for (std::size_t steps = 1; steps <= bounds_.size(); ++steps) {
            const std::uint32_t kernels = kernels_between(from, steps);
            if (kernels > reach) break;
            const double compute_ns = compute_between(from, steps);
            const double traffic_ns = crossed[kernels - skipped] / rate;
            Edge& each = edges_[from * bounds_.size() + steps - 1];
            if (traffic_ns - compute_ns <= each.gain_ns) continue;
            const auto kind = direction == Direction::in ? WindowKind::in : WindowKind::out;
            each = {traffic_ns - compute_ns, cut, kind, 0, compute_ns, traffic_ns};
        }
    }

    void weigh_peak(std::size_t peak, std::uint32_t cut, const PeakSums& sums) {
        const TierCut& at = problem_.cuts[cut];
        const double price = peak_price(at);
        const auto room = static_cast<double>(at.room_bytes) -
                          static_cast<double>(problem_.versions.used_bytes[bounds_[peak]]);
        const std::size_t count = bounds_.size();
        for (std::size_t before = 0; before < count; ++before) {
            const std::size_t from = (peak + count - before) % count;
            for (std::size_t after = 1; before + after <= count; ++after) {
                const double traffic_ns = price * (sums.bytes(before, after) - room);
                Edge& each = edges_[from * count + before + after - 1];
                const double compute_ns = compute_between(from, before + after);
                if (traffic_ns - compute_ns <= each.gain_ns) continue;
                each = {traffic_ns - compute_ns,
                        cut,
                        WindowKind::around_peak,
                        before == 0 ? 0 : kernels_between(from, before),
                        compute_ns,
                        traffic_ns};
            }
        }
    }

    /// From the end of one bound's kernel to the start of another's.
    double compute_between(std::size_t from, std::size_t steps) const {
        const std::uint32_t first = bounds_[from] + 1;
        const std::uint32_t last = bounds_[from] + kernels_between(from, steps);
        return computed_before_[last] - computed_before_[first];
    }

    const WindowProblem& problem_;
    std::span<const std::uint32_t> bounds_;
    std::span<const std::uint32_t> peaks_;
    std::uint32_t long_stride_;
    std::vector<double> computed_before_;  ///< by kernel of two steps
    std::vector<Edge> edges_;              ///< by first bound and number of bounds
};

}  // namespace

std::vector<TrafficWindow> find_windows(const WindowProblem& problem, const WindowBounds& bounds) {
    Partition partition(problem, bounds);
    partition.weigh();
    return partition.best();
}

std::vector<CutPrices> window_prices(const WindowProblem& problem,
                                     std::span<const TrafficWindow> windows) {
    const std::uint32_t points = problem.versions.points;
    std::vector<CutPrices> prices(problem.cuts.size(), CutPrices(points));
    for (std::uint32_t cut = 0; cut < problem.cuts.size(); ++cut) {
        TrafficSweep sweep(problem.versions, problem.cuts[cut]);
        for (const TrafficWindow& each : windows) {
            if (each.cut != cut) continue;
            if (each.kind == WindowKind::around_peak) {
                const double price = peak_price(problem.cuts[cut]);
                for (std::uint32_t i = 2; i <= 2 * each.kernels; ++i) {
                    std::vector<double>& crossing =
                        i <= 2 * each.peak + 1 ? prices[cut].out : prices[cut].in;
                    crossing[(2 * each.first + i) % points] = price;
                }
                prices[cut].room[(2 * (each.first + each.peak) + 1) % points] += price;
                continue;
            }
            const bool in = each.kind == WindowKind::in;
            const Direction direction = in ? Direction::in : Direction::out;
            const double price =
                1 / (in ? problem.cuts[cut].in_bytes_per_ns : problem.cuts[cut].out_bytes_per_ns);
            std::vector<double>& crossing = in ? prices[cut].in : prices[cut].out;
            for (std::uint32_t i = 2; i <= 2 * each.kernels; ++i) {
                crossing[(2 * each.first + i) % points] = price;
            }
            const std::uint32_t skipped = in ? 1 : 0;
            sweep.sweep(direction, each.first + skipped, each.kernels + 1 - skipped);
            for (const std::uint32_t kernel : sweep.tight_kernels()) {
                // The kernel's run may be free, after which what leaves has left, and before which
                // nothing has come back.
                prices[cut].room[2 * kernel + (in ? 1 : 0)] += price;
            }
        }
    }
    return prices;
}

}  // namespace frostline
