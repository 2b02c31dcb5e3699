// Saved activations in the order of a queue on the way out, and of their return on the way back.
#include "migration/policies/fifo_offload_policy.h"

#include "migration/policies/belady_policy.h"
#include "migration/policies/eviction.h"
#include "migration/policies/prefetch.h"

#include <algorithm>

namespace frostline {
namespace {

// Where the forward pass has saved all that it saves, and the backward pass has freed nothing yet.
KernelIndex fullest_kernel(const FutureUses& uses) {
    std::vector<std::int64_t> change_bytes(uses.kernels() + std::size_t{1});
    for (TensorIndex tensor = 0; tensor < uses.tensors(); ++tensor) {
        const auto kernels = uses.uses(tensor);
        if (uses.is_weight(tensor) || kernels.empty()) continue;
        const auto size_bytes = static_cast<std::int64_t>(uses.size_bytes(tensor));
        change_bytes[kernels.front()] += size_bytes;
        change_bytes[kernels.back() + std::size_t{1}] -= size_bytes;
    }
    KernelIndex fullest = 0;
    std::int64_t bytes = 0;
    std::int64_t most_bytes = -1;
    for (KernelIndex kernel = 0; kernel < uses.kernels(); ++kernel) {
        bytes += change_bytes[kernel];
        if (bytes > most_bytes) {
            most_bytes = bytes;
            fullest = kernel;
        }
    }
    return fullest;
}

}  // namespace

FifoOffloadPolicy::FifoOffloadPolicy(std::shared_ptr<const FutureUses> all_uses)
    : uses_(std::move(all_uses)), turning_kernel_(fullest_kernel(*uses_)) {
    const FutureUses& uses = *uses_;
    for (TensorIndex tensor = 0; tensor < uses.tensors(); ++tensor) {
        const auto kernels = uses.uses(tensor);
        const auto back = std::upper_bound(kernels.begin(), kernels.end(), turning_kernel_);
        if (uses.is_weight(tensor) || back == kernels.begin() || back == kernels.end()) continue;
        by_leaving_.push_back({tensor, *(back - 1)});
        by_return_.push_back({tensor, *back});
    }
    const auto earlier = [](const Saved& a, const Saved& b) { return a.kernel < b.kernel; };
    std::stable_sort(by_leaving_.begin(), by_leaving_.end(), earlier);
    std::stable_sort(by_return_.begin(), by_return_.end(), earlier);
}

// From the youngest back to one that has left: all before that have, too.
void FifoOffloadPolicy::offload(const PolicyView& view, std::vector<Decision>& decisions) const {
    std::vector<const TensorRecord*> waiting;
    std::size_t leaving = 0;
    const auto settled = std::upper_bound(
        by_leaving_.begin(), by_leaving_.end(), view.step->kernel,
        [](KernelIndex kernel, const Saved& each) { return kernel < each.kernel; });
    for (auto each = settled; each != by_leaving_.begin();) {
        --each;
        const TensorRecord* const record = view.step->records[each->tensor];
        if (record == nullptr) continue;
        const ResidencyState state = record->residency.load();
        if (state.home != TierId{0}) break;
        if (state.moving) {
            ++leaving;
        } else {
            waiting.push_back(record);
        }
    }
    Eviction eviction(view, decisions);
    for (; !waiting.empty() && leaving < kMostLeaving; waiting.pop_back()) {
        if (eviction.evict(*waiting.back())) ++leaving;
    }
}

void FifoOffloadPolicy::fetch(const PolicyView& view, std::vector<Decision>& decisions) const {
    Prefetch prefetch(view, decisions);
    auto next = std::upper_bound(
        by_return_.begin(), by_return_.end(), view.step->kernel,
        [](KernelIndex kernel, const Saved& each) { return kernel < each.kernel; });
    for (std::size_t ahead = 0; ahead < kFetchedAhead && next != by_return_.end(); ++next) {
        const TensorRecord* const record = view.step->records[next->tensor];
        if (record == nullptr || record->residency.load().home == TierId{0}) continue;
        ++ahead;
        if (!prefetch.fetch(*record)) return;
    }
}

void FifoOffloadPolicy::decide(const PolicyView& view, const PolicyEvent& event,
                               std::vector<Decision>& decisions) const {
    if (event.kind == PolicyEvent::Kind::pressure) {
        evict_furthest_use(*uses_, view, event.bytes, decisions);
    } else if (view.step != nullptr && view.step->kernel <= turning_kernel_) {
        offload(view, decisions);
    } else if (view.step != nullptr) {
        fetch(view, decisions);
    }
}

}  // namespace frostline
