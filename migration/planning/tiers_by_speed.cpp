// The order of a machine's tiers in which the live engine has them, too.
#include "migration/planning/tiers_by_speed.h"

#include "tiers/extent.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace frostline {

Result<std::vector<TierIndex>> tiers_by_speed(const Machine& machine) {
    if (machine.tiers.size() > kMaxTiers) {
        return Error(Errc::invalid_argument, 0, "machine: {} tiers; a policy can see {} at most",
                     machine.tiers.size(), kMaxTiers);
    }
    const auto return_rate = [&](TierIndex tier) {
        const MachineLink* const link = machine.link(tier, machine.device);
        return link == nullptr ? 0.0 : machine.bytes_per_second(*link);
    };
    std::vector<TierIndex> tiers(machine.tiers.size());
    std::iota(tiers.begin(), tiers.end(), 0);
    std::swap(tiers.front(), tiers[machine.device]);
    std::stable_sort(tiers.begin() + 1, tiers.end(), [&](TierIndex a, TierIndex b) {
        const double rate_a = return_rate(a);
        const double rate_b = return_rate(b);
        return rate_a != rate_b ? rate_a > rate_b : a < b;
    });
    return tiers;
}

}  // namespace frostline
