// Which kernels use each tensor, in their order, and which of them write it.
#pragma once

#include "migration/planning/trace.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace frostline {

struct TensorUse {
    KernelIndex kernel = 0;
    bool writes = false;
};

/// Immutable; safe to share between threads.
class TensorUses {
   public:
    /// May throw std::bad_alloc. O(all uses).
    explicit TensorUses(const Trace& trace);

    std::span<const TensorUse> of(TensorIndex tensor) const noexcept {
        return std::span(uses_).subspan(starts_[tensor], starts_[tensor + 1] - starts_[tensor]);
    }
    /// What a kernel uses, each tensor once.
    std::span<const TensorIndex> tensors(KernelIndex kernel) const noexcept {
        return std::span(tensors_).subspan(kernel_starts_[kernel],
                                           kernel_starts_[kernel + 1] - kernel_starts_[kernel]);
    }
    bool uses(KernelIndex kernel, TensorIndex tensor) const noexcept;
    bool is_ever_written(TensorIndex tensor) const noexcept;

   private:
    std::vector<TensorUse> uses_;
    std::vector<std::size_t> starts_;
    std::vector<TensorIndex> tensors_;
    std::vector<std::size_t> kernel_starts_;
};

}  // namespace frostline
