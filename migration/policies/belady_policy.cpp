// Furthest next use.
#include "migration/policies/belady_policy.h"

#include "migration/policies/eviction.h"

#include <algorithm>
#include <utility>

namespace frostline {

void evict_furthest_use(const FutureUses& uses, const PolicyView& view, std::uint64_t bytes,
                        std::vector<Decision>& decisions) {
    Eviction eviction(view, decisions);
    if (eviction.free_bytes() >= bytes) return;
    std::vector<std::pair<std::uint64_t, const TensorRecord*>> candidates;
    for (const TensorRecord& record : view.by_use) {
        const std::uint32_t tensor =
            view.step == nullptr ? StepView::kUnknown : view.step->tensor(record);
        candidates.emplace_back(tensor == StepView::kUnknown
                                    ? FutureUses::kNever
                                    : uses.next_use(tensor, view.step->kernel),
                                &record);
    }
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    for (const auto& [next_use, record] : candidates) {
        if (eviction.free_bytes() >= bytes) return;
        (void)eviction.evict(*record);
    }
}

void BeladyPolicy::decide(const PolicyView& view, const PolicyEvent& event,
                          std::vector<Decision>& decisions) const {
    if (event.kind != PolicyEvent::Kind::pressure) return;
    evict_furthest_use(*uses_, view, event.bytes, decisions);
}

}  // namespace frostline
