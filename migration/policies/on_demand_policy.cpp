// Least recently used eviction under pressure, and only then.
#include "migration/policies/on_demand_policy.h"

#include "migration/policies/eviction.h"

namespace frostline {

void OnDemandPolicy::decide(const PolicyView& view, const PolicyEvent& event,
                            std::vector<Decision>& decisions) const {
    if (event.kind != PolicyEvent::Kind::pressure) return;
    Eviction eviction(view, decisions);
    for (const TensorRecord& tensor : view.by_use) {
        if (eviction.free_bytes() >= event.bytes) return;
        (void)eviction.evict(tensor);
    }
}

}  // namespace frostline
