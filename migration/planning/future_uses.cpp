// A trace's uses, by kernel and by tensor.
#include "migration/planning/future_uses.h"

#include <algorithm>
#include <utility>

namespace frostline {
namespace {

constexpr KernelIndex kNoKernel = 0xffffffff;

}  // namespace

FutureUses::FutureUses(const Trace& trace)
    : kernels_(static_cast<std::uint32_t>(trace.kernels().size())),
      first_(trace.tensors().size() + 1) {
    // A tensor may be read and written by the same kernel.
    std::vector<KernelIndex> last_user(trace.tensors().size(), kNoKernel);
    first_used_.reserve(kernels_ + std::size_t{1});
    for (KernelIndex kernel = 0; kernel < kernels_; ++kernel) {
        first_used_.push_back(static_cast<std::uint32_t>(used_.size()));
        for (const TensorIndex tensor : trace.uses(kernel)) {
            if (std::exchange(last_user[tensor], kernel) == kernel) continue;
            used_.push_back(tensor);
            ++first_[tensor + 1];
        }
    }
    first_used_.push_back(static_cast<std::uint32_t>(used_.size()));
    for (std::size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
    uses_.resize(used_.size());
    std::vector<std::uint32_t> next(first_.begin(), first_.end() - 1);
    for (KernelIndex kernel = 0; kernel < kernels_; ++kernel) {
        for (const TensorIndex tensor : tensors(kernel)) uses_[next[tensor]++] = kernel;
    }
    for (const TraceTensor& tensor : trace.tensors()) {
        size_bytes_.push_back(tensor.size_bytes);
        is_weight_.push_back(tensor.is_weight);
    }
    start_ns_.reserve(kernels_ + std::size_t{1});
    start_ns_.push_back(0);
    for (const TraceKernel& kernel : trace.kernels()) {
        start_ns_.push_back(start_ns_.back() + kernel.duration_ns);
    }
}

std::uint64_t FutureUses::next_use(TensorIndex tensor, KernelIndex kernel) const noexcept {
    const std::span<const KernelIndex> all = uses(tensor);
    const auto next = std::upper_bound(all.begin(), all.end(), kernel);
    if (next != all.end()) return *next;
    if (all.empty() || !is_weight_[tensor]) return kNever;
    return std::uint64_t{kernels_} + all.front();
}

}  // namespace frostline
