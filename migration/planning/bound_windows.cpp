// Sweeps start at every bound once; where to cut is then a shortest path, taken over all first cuts
// because the step is a cycle.
#include "migration/planning/bound_windows.h"

#include <algorithm>
#include <cstddef>

namespace frostline {
namespace {

/// The best use of kernels [bounds[i], bounds[i + steps]): gain over computing alone.
struct Edge {
    double gain_ns = 0;
    std::uint32_t cut = 0;
    Direction direction = Direction::in;
    double compute_ns = 0;
    double traffic_ns = 0;
};

class Partition {
   public:
    Partition(const WindowProblem& problem, std::span<const std::uint32_t> bounds)
        : problem_(problem), bounds_(bounds), edges_(bounds.size() * bounds.size()) {}

    void weigh() {
        for (std::uint32_t cut = 0; cut < problem_.cuts.size(); ++cut) {
            TrafficSweep sweep(problem_.versions, problem_.cuts[cut]);
            for (std::size_t from = 0; from < bounds_.size(); ++from) {
                weigh(from, cut, Direction::in, sweep);
                weigh(from, cut, Direction::out, sweep);
            }
        }
    }

    std::vector<TrafficWindow> best() const {
        std::vector<TrafficWindow> best;
        double best_gain = 0;
        std::vector<double> gain(bounds_.size() + 1);
        std::vector<std::size_t> previous(bounds_.size() + 1);
        for (std::size_t start = 0; start < bounds_.size(); ++start) {
            for (std::size_t to = 1; to <= bounds_.size(); ++to) {
                gain[to] = -1;
                for (std::size_t from = 0; from < to; ++from) {
                    const double sum = gain[from] + edge(start + from, to - from).gain_ns;
                    if (sum > gain[to]) gain[to] = sum, previous[to] = from;
                }
            }
            if (gain.back() <= best_gain) continue;
            best_gain = gain.back();
            best.clear();
            for (std::size_t to = bounds_.size(); to > 0; to = previous[to]) {
                const Edge& each = edge(start + previous[to], to - previous[to]);
                if (each.gain_ns <= 0) continue;
                const std::size_t from = start + previous[to];
                best.push_back({.first = bounds_[from % bounds_.size()],
                                .kernels = kernels_between(from, to - previous[to]),
                                .cut = each.cut,
                                .direction = each.direction,
                                .compute_ns = each.compute_ns,
                                .traffic_ns = each.traffic_ns});
            }
        }
        return best;
    }

   private:
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
        const TierCut& at = problem_.cuts[cut];
        const double rate = direction == Direction::in ? at.in_bytes_per_ns : at.out_bytes_per_ns;
        const std::span<const double> crossed = sweep.sweep(direction, bounds_[from], all);
        double compute_ns = 0;
        std::uint32_t done = 0;
        for (std::size_t steps = 1; steps <= bounds_.size(); ++steps) {
            for (const std::uint32_t kernels = kernels_between(from, steps); done < kernels;
                 ++done) {
                compute_ns += problem_.kernel_ns[(bounds_[from] + done) % all];
            }
            const double traffic_ns = crossed[done - 1] / rate;
            Edge& each = edges_[from * bounds_.size() + steps - 1];
            if (traffic_ns - compute_ns <= each.gain_ns) continue;
            each = {traffic_ns - compute_ns, cut, direction, compute_ns, traffic_ns};
        }
    }

    const WindowProblem& problem_;
    std::span<const std::uint32_t> bounds_;
    std::vector<Edge> edges_;  ///< by first bound and number of bounds
};

}  // namespace

std::vector<TrafficWindow> find_windows(const WindowProblem& problem,
                                        std::span<const std::uint32_t> bounds) {
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
            const bool in = each.direction == Direction::in;
            const double price =
                1 / (in ? problem.cuts[cut].in_bytes_per_ns : problem.cuts[cut].out_bytes_per_ns);
            std::vector<double>& crossing = in ? prices[cut].in : prices[cut].out;
            for (std::uint32_t i = 0; i < 2 * each.kernels; ++i) {
                crossing[(2 * each.first + i) % points] = price;
            }
            sweep.sweep(each.direction, each.first, each.kernels);
            for (const std::uint32_t kernel : sweep.tight_kernels()) {
                prices[cut].room[2 * kernel + 1] += price;
            }
        }
    }
    return prices;
}

}  // namespace frostline
