// Greedy choice of idle periods, against memory pressure and bandwidth that are counted by kernel.
#include "migration/policies/g10_plan.h"

#include <algorithm>
#include <optional>
#include <queue>
#include <tuple>

namespace frostline {
namespace {

// A slower tier is taken while it relieves at least this part of the pressure that a faster would.
constexpr double kGoodEnough = 0.9;

struct Period {
    TensorIndex tensor = 0;
    std::uint64_t after = 0;  ///< idle from the kernel after this one
    std::uint64_t until = 0;  ///< to the kernel before this one
};

struct Candidate {
    G10Trip trip;
    std::uint64_t gone_from = 0;  ///< the first kernel that finds its room free
    double relief = 0;            ///< byte-seconds of memory pressure
    double score = 0;             ///< relief by byte of what links could carry
};

class G10Planner {
   public:
    G10Planner(const FutureUses& uses, const Machine& machine, const std::vector<TierIndex>& tiers)
        : uses_(uses), machine_(machine), tiers_(tiers), kernels_(uses.kernels()) {
        for (KernelIndex k = 0; k < kernels_; ++k) {
            seconds_.push_back(static_cast<double>(uses.start_ns(k + 1) - uses.start_ns(k)) / 1e9);
        }
        for (const MachineResource& resource : machine.resources) {
            auto& free = bandwidth_left_.emplace_back();
            for (const double seconds : seconds_)
                free.push_back(seconds * resource.bytes_per_second);
        }
        for (const TierIndex tier : tiers) {
            room_.emplace_back(kernels_, static_cast<double>(machine.tiers[tier].size_bytes));
        }
        demand_.resize(kernels_);
    }

    std::vector<G10Trip> plan();

   private:
    std::vector<Period> periods();
    std::optional<Candidate> best(const Period& period) const;
    std::optional<Candidate> try_tier(const Period& period, std::size_t tier) const;
    void commit(const Candidate& candidate);
    void reset_bandwidth();
    void order_fetches(std::vector<G10Trip>& trips);
    std::size_t slot(std::uint64_t kernel) const { return kernel % kernels_; }
    double left(const MachineLink& link, std::size_t slot) const;
    double take(const MachineLink& link, std::size_t slot, double bytes);
    const MachineLink* out(std::size_t tier) const {
        return machine_.link(machine_.device, tiers_[tier]);
    }
    const MachineLink* in(std::size_t tier) const {
        return machine_.link(tiers_[tier], machine_.device);
    }
    // What latency costs is counted as bytes that the link could have carried meanwhile.
    double load_bytes(const MachineLink& link, double bytes) const {
        return bytes + static_cast<double>(link.latency_ns) / 1e9 * machine_.bytes_per_second(link);
    }

    const FutureUses& uses_;
    const Machine& machine_;
    const std::vector<TierIndex>& tiers_;
    std::uint64_t kernels_;
    std::vector<double> seconds_;                      ///< by kernel
    std::vector<std::vector<double>> bandwidth_left_;  ///< by resource and kernel, in bytes
    std::vector<std::vector<double>> room_;            ///< by TierId and kernel
    std::vector<double> demand_;                       ///< of the device, by kernel
};

std::vector<Period> G10Planner::periods() {
    std::vector<Period> periods;
    for (TensorIndex tensor = 0; tensor < uses_.tensors(); ++tensor) {
        const auto kernels = uses_.uses(tensor);
        if (kernels.empty()) continue;
        const auto bytes = static_cast<double>(uses_.size_bytes(tensor));
        const bool weight = uses_.is_weight(tensor);
        const std::uint64_t first = weight ? 0 : kernels.front();
        const std::uint64_t last = weight ? kernels_ - 1 : kernels.back();
        for (std::uint64_t k = first; k <= last; ++k) demand_[k] += bytes;
        for (std::size_t i = 0; i + 1 < kernels.size(); ++i) {
            if (kernels[i] + 1 < kernels[i + 1]) {
                periods.push_back({tensor, kernels[i], kernels[i + 1]});
            }
        }
        const std::uint64_t again = kernels_ + kernels.front();
        if (weight && kernels.back() + std::uint64_t{1} < again) {
            periods.push_back({tensor, kernels.back(), again});
        }
    }
    return periods;
}

double G10Planner::left(const MachineLink& link, std::size_t slot) const {
    double left = machine_.bytes_per_second(link) * seconds_[slot];
    for (const ResourceIndex resource : link.resources) {
        left = std::min(left, bandwidth_left_[resource][slot]);
    }
    return left;
}

double G10Planner::take(const MachineLink& link, std::size_t slot, double bytes) {
    const double taken = std::min(bytes, left(link, slot));
    for (const ResourceIndex resource : link.resources) bandwidth_left_[resource][slot] -= taken;
    return taken;
}

std::optional<Candidate> G10Planner::try_tier(const Period& period, std::size_t tier) const {
    const MachineLink* const leave = out(tier);
    const MachineLink* const fetch = in(tier);
    if (leave == nullptr || fetch == nullptr) return std::nullopt;
    const auto bytes = static_cast<double>(uses_.size_bytes(period.tensor));
    const double capacity = room_[0][0];
    std::uint64_t from = period.after + 1;  // the first kernel without it
    for (double rest = load_bytes(*leave, bytes); rest > 0 && from < period.until; ++from) {
        rest -= left(*leave, slot(from));
        if (rest > 0 && from + 1 == period.until) return std::nullopt;
    }
    std::uint64_t to = period.until;  // the first kernel with room for it again
    for (double rest = load_bytes(*fetch, bytes); rest > 0 && to > from; --to) {
        rest -= left(*fetch, slot(to - 1));
        if (rest > 0 && to - 1 == from) return std::nullopt;
    }
    double relief = 0;
    for (std::uint64_t k = from; k < to; ++k) {
        const double excess = demand_[slot(k)] - capacity;
        if (excess > 0) relief += std::min(excess, bytes) * seconds_[slot(k)];
    }
    if (relief <= 0) return std::nullopt;
    for (std::uint64_t k = period.after + 1; k < period.until; ++k) {
        if (room_[tier][slot(k)] < bytes) return std::nullopt;
    }
    return Candidate{{period.tensor, static_cast<TierId>(tier),
                      static_cast<KernelIndex>(period.after), to, period.until},
                     from,
                     relief,
                     relief / (load_bytes(*leave, bytes) + load_bytes(*fetch, bytes))};
}

std::optional<Candidate> G10Planner::best(const Period& period) const {
    std::optional<Candidate> best;
    for (std::size_t tier = 1; tier < tiers_.size(); ++tier) {
        const auto candidate = try_tier(period, tier);
        if (!candidate) continue;
        if (!best || candidate->relief >= kGoodEnough * best->relief) best = candidate;
    }
    return best;
}

void G10Planner::commit(const Candidate& candidate) {
    const G10Trip& trip = candidate.trip;
    const auto bytes = static_cast<double>(uses_.size_bytes(trip.tensor));
    const std::size_t tier = index_of(trip.tier);
    double rest = load_bytes(*out(tier), bytes);
    for (std::uint64_t k = trip.leaves_after + std::uint64_t{1}; rest > 0 && k < trip.back_by;
         ++k) {
        rest -= take(*out(tier), slot(k), rest);
    }
    rest = load_bytes(*in(tier), bytes);
    for (std::uint64_t k = trip.back_by; rest > 0 && k > trip.fetched_from; --k) {
        rest -= take(*in(tier), slot(k - 1), rest);
    }
    for (std::uint64_t k = candidate.gone_from; k < trip.fetched_from; ++k)
        demand_[slot(k)] -= bytes;
    for (std::uint64_t k = trip.leaves_after + std::uint64_t{1}; k < trip.back_by; ++k) {
        room_[tier][slot(k)] -= bytes;
    }
}

void G10Planner::reset_bandwidth() {
    bandwidth_left_.clear();
    for (const MachineResource& resource : machine_.resources) {
        auto& left = bandwidth_left_.emplace_back();
        for (const double seconds : seconds_) left.push_back(seconds * resource.bytes_per_second);
    }
}

// The trips were chosen in another order than that of their returns, and so have taken what was
// left between others' transfers. A link carries one copy after another: the latest time at which
// each can begin is found from the last return backwards.
void G10Planner::order_fetches(std::vector<G10Trip>& trips) {
    reset_bandwidth();
    std::stable_sort(trips.begin(), trips.end(),
                     [](const G10Trip& a, const G10Trip& b) { return a.back_by > b.back_by; });
    for (G10Trip& trip : trips) {
        const MachineLink& link = *in(index_of(trip.tier));
        const std::uint64_t earliest = trip.leaves_after + std::uint64_t{1};
        double rest = load_bytes(link, static_cast<double>(uses_.size_bytes(trip.tensor)));
        trip.fetched_from = trip.back_by;
        while (rest > 0 && trip.fetched_from > earliest) {
            rest -= take(link, slot(--trip.fetched_from), rest);
        }
    }
}

// A score only falls as others take bandwidth and pressure, or nearly so: the one that is best when
// it is looked at again is taken.
std::vector<G10Trip> G10Planner::plan() {
    const std::vector<Period> periods = this->periods();
    // Of two that are as good the longer one, which leaves more choice of tiers and of times.
    using Rank = std::tuple<double, std::uint64_t, std::size_t>;
    std::priority_queue<Rank> queue;
    const auto enqueue = [&](std::size_t i, double score) {
        queue.emplace(score, periods[i].until - periods[i].after, i);
    };
    for (std::size_t i = 0; i < periods.size(); ++i) {
        if (const auto candidate = best(periods[i])) enqueue(i, candidate->score);
    }
    std::vector<G10Trip> trips;
    while (!queue.empty()) {
        const std::size_t i = std::get<2>(queue.top());
        queue.pop();
        const auto candidate = best(periods[i]);
        if (!candidate) continue;
        if (!queue.empty() && candidate->score < std::get<double>(queue.top())) {
            enqueue(i, candidate->score);
            continue;
        }
        commit(*candidate);
        trips.push_back(candidate->trip);
    }
    order_fetches(trips);
    std::stable_sort(trips.begin(), trips.end(), [](const G10Trip& a, const G10Trip& b) {
        return a.leaves_after < b.leaves_after;
    });
    return trips;
}

}  // namespace

std::vector<G10Trip> plan_g10_trips(const FutureUses& uses, const Machine& machine,
                                    const std::vector<TierIndex>& tiers) {
    return G10Planner(uses, machine, tiers).plan();
}

}  // namespace frostline
