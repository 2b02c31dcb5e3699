// All links across a cut together carry at most the bandwidth of any set of resources of which each
// link loads one: so the cheapest such set that is found is the cut's speed.
#include "migration/planning/tier_cuts.h"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace frostline {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// The judge forgives this much load above a resource's bandwidth.
constexpr double kJudgeSlack = 1 + 1e-6;
/// Machines have few tiers. Of one with more, only sets of the first are looked at, which leaves a
/// bound lower than it could be, but right.
constexpr std::size_t kMaxTiers = 8;
constexpr std::size_t kMaxCuts = 4;
/// Sets of resources looked at; the cheapest so far is good, too.
constexpr int kMaxSets = 10000;

class CheapestCover {
   public:
    CheapestCover(const Machine& machine, std::vector<const MachineLink*> links)
        : machine_(machine), links_(std::move(links)), chosen_(machine.resources.size()) {}

    double bytes_per_second() {
        extend(0, 0);
        return best_;
    }

   private:
    void extend(std::size_t link, double sum) {
        if (sum >= best_ || (best_ < kInfinity && ++looked_at_ > kMaxSets)) return;
        const auto is_chosen = [&](ResourceIndex each) { return chosen_[each]; };
        while (link < links_.size() && std::any_of(links_[link]->resources.begin(),
                                                   links_[link]->resources.end(), is_chosen)) {
            ++link;
        }
        if (link == links_.size()) {
            best_ = sum;
            return;
        }
        for (const ResourceIndex each : links_[link]->resources) {
            chosen_[each] = true;
            extend(link + 1, sum + machine_.resources[each].bytes_per_second);
            chosen_[each] = false;
        }
    }

    const Machine& machine_;
    std::vector<const MachineLink*> links_;
    std::vector<bool> chosen_;
    double best_ = kInfinity;  ///< and it stays so if a link loads nothing
    int looked_at_ = 0;
};

double bytes_per_ns(const Machine& machine, std::uint32_t inside, bool inwards) {
    const auto is_inside = [&](TierIndex tier) { return tier < kMaxTiers && (inside >> tier & 1); };
    std::vector<const MachineLink*> across;
    for (const MachineLink& link : machine.links) {
        const TierIndex from = inwards ? link.from : link.to;
        const TierIndex to = inwards ? link.to : link.from;
        if (!is_inside(from) && is_inside(to)) across.push_back(&link);
    }
    return CheapestCover(machine, std::move(across)).bytes_per_second() * kJudgeSlack * 1e-9;
}

}  // namespace

std::vector<TierCut> tier_cuts(const Machine& machine, std::uint64_t live_bytes) {
    const std::size_t tiers = std::min(kMaxTiers, machine.tiers.size());
    std::vector<TierCut> cuts;
    if (machine.device >= tiers) return cuts;
    for (std::uint32_t inside = 0; inside < (1U << tiers); ++inside) {
        if ((inside >> machine.device & 1) == 0) continue;
        TierCut cut;
        for (std::size_t tier = 0; tier < tiers; ++tier) {
            // No sum can wrap around, because it is not added to once it reaches what is live.
            const bool counts = (inside >> tier & 1) != 0 && cut.room_bytes < live_bytes;
            if (counts) cut.room_bytes += std::min(machine.tiers[tier].size_bytes, live_bytes);
        }
        if (cut.room_bytes >= live_bytes) continue;
        cut.in_bytes_per_ns = bytes_per_ns(machine, inside, true);
        cut.out_bytes_per_ns = bytes_per_ns(machine, inside, false);
        if (cut.in_bytes_per_ns > 0 && cut.out_bytes_per_ns > 0) cuts.push_back(cut);
    }
    std::stable_sort(cuts.begin(), cuts.end(), [](const TierCut& left, const TierCut& right) {
        return left.room_bytes < right.room_bytes;
    });
    if (cuts.size() > kMaxCuts) cuts.resize(kMaxCuts);
    return cuts;
}

}  // namespace frostline
