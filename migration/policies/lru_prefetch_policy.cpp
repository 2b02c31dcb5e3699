// Least recently used eviction with look-ahead prefetch.
#include "migration/policies/lru_prefetch_policy.h"

#include "migration/policies/eviction.h"
#include "migration/policies/prefetch.h"

#include <algorithm>

namespace frostline {
namespace {

// Calls for what the next kernels use and is alive, in order, until the window is full or the call
// says false. The result is the last kernel within the window, counted on into the next step.
template <class Call>
std::uint64_t for_each_ahead(const FutureUses& uses, const PolicyView& view, Call&& call) {
    std::uint64_t ahead_bytes = 0;
    const std::uint64_t window_bytes = std::min(
        view.prefetch_bytes, view.tiers[0].capacity_bytes / LruPrefetchPolicy::kWindowDivisor);
    const std::uint64_t now = view.step->kernel;
    for (std::uint64_t kernel = now + 1; kernel < now + uses.kernels(); ++kernel) {
        for (const TensorIndex tensor :
             uses.tensors(static_cast<KernelIndex>(kernel % uses.kernels()))) {
            const TensorRecord* const record = view.step->records[tensor];
            if (record == nullptr) continue;
            ahead_bytes += record->size_bytes;
            if (ahead_bytes > window_bytes || !call(*record)) return kernel;
        }
    }
    return now + uses.kernels();
}

}  // namespace

std::uint64_t LruPrefetchPolicy::horizon(const PolicyView& view) const {
    return for_each_ahead(*uses_, view, [](const TensorRecord&) { return true; });
}

// What the window will use goes only if somebody waits and nothing else is left to give up.
void LruPrefetchPolicy::evict(const PolicyView& view, std::uint64_t wanted_bytes,
                              std::vector<Decision>& decisions) const {
    const TierView& top = view.tiers[0];
    const std::uint64_t goal =
        std::min(top.capacity_bytes, wanted_bytes + top.capacity_bytes / kHeadroomDivisor);
    Eviction eviction(view, decisions);
    if (eviction.free_bytes() >= goal) return;
    const std::uint64_t horizon = view.step == nullptr ? 0 : this->horizon(view);
    const auto is_soon = [&](const TensorRecord& record) {
        const std::uint32_t tensor =
            view.step == nullptr ? StepView::kUnknown : view.step->tensor(record);
        return tensor != StepView::kUnknown &&
               uses_->next_use(tensor, view.step->kernel) <= horizon;
    };
    for (const TensorRecord& record : view.by_use) {
        if (eviction.free_bytes() >= goal) return;
        if (!is_soon(record)) (void)eviction.evict(record);
    }
    for (const TensorRecord& record : view.by_use) {
        if (eviction.free_bytes() >= wanted_bytes) return;
        if (is_soon(record)) (void)eviction.evict(record);
    }
}

void LruPrefetchPolicy::prefetch(const PolicyView& view, std::vector<Decision>& decisions) const {
    if (view.step == nullptr) return;
    Prefetch prefetch(view, decisions);
    (void)for_each_ahead(*uses_, view,
                         [&](const TensorRecord& record) { return prefetch.fetch(record); });
}

void LruPrefetchPolicy::decide(const PolicyView& view, const PolicyEvent& event,
                               std::vector<Decision>& decisions) const {
    switch (event.kind) {
        case PolicyEvent::Kind::settled:
            evict(view, 0, decisions);
            break;
        case PolicyEvent::Kind::pressure:
            evict(view, event.bytes, decisions);
            break;
        case PolicyEvent::Kind::used:
            prefetch(view, decisions);
            break;
    }
}

}  // namespace frostline
