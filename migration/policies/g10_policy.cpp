// Trips, looked up by kernel.
#include "migration/policies/g10_policy.h"

#include "migration/policies/belady_policy.h"
#include "migration/policies/eviction.h"
#include "migration/policies/prefetch.h"

#include <algorithm>

namespace frostline {

G10Policy::G10Policy(std::shared_ptr<const FutureUses> uses, const Machine& machine,
                     const std::vector<TierIndex>& tiers)
    : uses_(std::move(uses)),
      trips_(plan_g10_trips(*uses_, machine, tiers)),
      fetched_(uses_->kernels()) {
    // The soonest needed first. A fetch that finds no room is tried again until it is too late.
    std::vector<const G10Trip*> by_return;
    for (const G10Trip& trip : trips_) by_return.push_back(&trip);
    std::stable_sort(by_return.begin(), by_return.end(),
                     [](const G10Trip* a, const G10Trip* b) { return a->back_by < b->back_by; });
    for (const G10Trip* const trip : by_return) {
        for (std::uint64_t kernel = trip->fetched_from; kernel < trip->back_by; ++kernel) {
            fetched_[kernel % uses_->kernels()].push_back(trip->tensor);
        }
    }
}

void G10Policy::leave(const PolicyView& view, const TensorRecord& settled,
                      std::vector<Decision>& decisions) const {
    const auto [first, last] = std::equal_range(
        trips_.begin(), trips_.end(), G10Trip{.leaves_after = view.step->kernel},
        [](const G10Trip& a, const G10Trip& b) { return a.leaves_after < b.leaves_after; });
    Eviction eviction(view, decisions);
    for (auto trip = first; trip != last; ++trip) {
        if (view.step->records[trip->tensor] != &settled) continue;
        if (!eviction.evict_to(settled, trip->tier)) (void)eviction.evict(settled);
    }
}

void G10Policy::fetch(const PolicyView& view, std::vector<Decision>& decisions) const {
    Prefetch prefetch(view, decisions);
    for (const TensorIndex tensor : fetched_[view.step->kernel]) {
        const TensorRecord* const record = view.step->records[tensor];
        if (record != nullptr && !prefetch.fetch(*record)) return;
    }
}

void G10Policy::decide(const PolicyView& view, const PolicyEvent& event,
                       std::vector<Decision>& decisions) const {
    if (event.kind == PolicyEvent::Kind::pressure) {
        evict_furthest_use(*uses_, view, event.bytes, decisions);
        return;
    }
    if (view.step == nullptr) return;
    if (event.kind == PolicyEvent::Kind::settled) leave(view, *event.tensor, decisions);
    fetch(view, decisions);
}

}  // namespace frostline
