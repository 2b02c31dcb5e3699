// A kernel that names a tensor more than once uses it once, and writes it if any of these does.
#include "migration/planning/tensor_uses.h"

#include <algorithm>

namespace frostline {

TensorUses::TensorUses(const Trace& trace) {
    const std::size_t tensors = trace.tensors().size();
    const std::size_t kernels = trace.kernels().size();
    std::vector<std::vector<TensorUse>> by_tensor(tensors);
    kernel_starts_.reserve(kernels + 1);
    for (std::size_t i = 0; i < kernels; ++i) {
        const auto kernel = static_cast<KernelIndex>(i);
        kernel_starts_.push_back(tensors_.size());
        const auto note = [&](TensorIndex tensor, bool writes) {
            std::vector<TensorUse>& uses = by_tensor[tensor];
            if (uses.empty() || uses.back().kernel != kernel) {
                uses.push_back({kernel, writes});
                tensors_.push_back(tensor);
            } else {
                uses.back().writes |= writes;
            }
        };
        for (const TensorIndex tensor : trace.reads(kernel)) note(tensor, false);
        for (const TensorIndex tensor : trace.writes(kernel)) note(tensor, true);
    }
    kernel_starts_.push_back(tensors_.size());
    uses_.reserve(tensors_.size());
    starts_.reserve(tensors + 1);
    for (const std::vector<TensorUse>& uses : by_tensor) {
        starts_.push_back(uses_.size());
        uses_.insert(uses_.end(), uses.begin(), uses.end());
    }
    starts_.push_back(uses_.size());
}

bool TensorUses::uses(KernelIndex kernel, TensorIndex tensor) const noexcept {
    const std::span<const TensorIndex> used = tensors(kernel);
    return std::find(used.begin(), used.end(), tensor) != used.end();
}

bool TensorUses::is_ever_written(TensorIndex tensor) const noexcept {
    const std::span<const TensorUse> uses = of(tensor);
    return std::any_of(uses.begin(), uses.end(), [](const TensorUse& use) { return use.writes; });
}

}  // namespace frostline
