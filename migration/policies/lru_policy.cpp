// Least recently used eviction with reverse-birth-order prefetch.
#include "migration/policies/lru_policy.h"

#include "migration/policies/eviction.h"
#include "migration/policies/prefetch.h"

#include <algorithm>

namespace frostline {
namespace {

void evict(const PolicyView& view, std::uint64_t wanted_bytes, std::vector<Decision>& decisions) {
    const TierView& top = view.tiers[0];
    const std::uint64_t goal = std::min(
        top.capacity_bytes, wanted_bytes + top.capacity_bytes / LruPolicy::kHeadroomDivisor);
    Eviction eviction(view, decisions);
    for (const TensorRecord& tensor : view.by_use) {
        if (eviction.free_bytes() >= goal) return;
        (void)eviction.evict(tensor);  // where there is no room for it, a smaller one may still fit
    }
}

// Never evicts to make room: what is resident was born later and is needed sooner.
void prefetch(const PolicyView& view, const TensorRecord& used, std::vector<Decision>& decisions) {
    Prefetch prefetch(view, decisions);
    std::uint64_t ahead = 0;
    auto each = view.by_birth.iterator_to(used);
    while (each != view.by_birth.begin() && ahead < view.prefetch_bytes) {
        --each;
        if (each->residency.load().released) continue;
        ahead += each->size_bytes;
        if (!prefetch.fetch(*each)) return;
    }
}

}  // namespace

void LruPolicy::decide(const PolicyView& view, const PolicyEvent& event,
                       std::vector<Decision>& decisions) const {
    switch (event.kind) {
        case PolicyEvent::Kind::settled:
            evict(view, 0, decisions);
            break;
        case PolicyEvent::Kind::pressure:
            evict(view, event.bytes, decisions);
            break;
        case PolicyEvent::Kind::used:
            prefetch(view, *event.tensor, decisions);
            break;
    }
}

}  // namespace frostline
