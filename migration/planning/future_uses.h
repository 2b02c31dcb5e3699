// What a trace says of the future: which kernels use a tensor, and when each kernel would start if
// nothing had to wait. Made once from a trace, and never told where a run stands.
#pragma once

#include "migration/planning/trace.h"

#include <cstdint>
#include <span>
#include <vector>

namespace frostline {

/// Immutable; safe to share between threads. Keeps nothing of the trace it was made from.
class FutureUses {
   public:
    static constexpr std::uint64_t kNever = UINT64_MAX;

    /// May throw std::bad_alloc. O(n) in the trace's uses.
    explicit FutureUses(const Trace& trace);

    std::uint32_t kernels() const noexcept { return kernels_; }
    std::uint32_t tensors() const noexcept { return static_cast<std::uint32_t>(first_.size() - 1); }

    /// The kernels that use a tensor, each once, in order.
    std::span<const KernelIndex> uses(TensorIndex tensor) const noexcept {
        return std::span(uses_).subspan(first_[tensor], first_[tensor + 1] - first_[tensor]);
    }
    /// What a kernel uses, each tensor once.
    std::span<const TensorIndex> tensors(KernelIndex kernel) const noexcept {
        return std::span(used_).subspan(first_used_[kernel],
                                        first_used_[kernel + 1] - first_used_[kernel]);
    }
    /// The first kernel after `kernel` that uses the tensor. What lives across steps is used again
    /// in the next one, whose kernels are counted on: kernels() is its first. kNever: no use
    /// follows. O(log n).
    std::uint64_t next_use(TensorIndex tensor, KernelIndex kernel) const noexcept;

    bool is_weight(TensorIndex tensor) const noexcept { return is_weight_[tensor]; }
    std::uint64_t size_bytes(TensorIndex tensor) const noexcept { return size_bytes_[tensor]; }

    /// When a kernel starts if none waits, since the start of the step; up to kernels(), whose
    /// start is the step's end.
    std::uint64_t start_ns(std::uint32_t kernel) const noexcept { return start_ns_[kernel]; }

   private:
    std::uint32_t kernels_;
    std::vector<std::uint32_t> first_;  ///< of each tensor in uses_; one more at the end
    std::vector<KernelIndex> uses_;
    std::vector<std::uint32_t> first_used_;  ///< of each kernel in used_; one more at the end
    std::vector<TensorIndex> used_;
    std::vector<std::uint64_t> size_bytes_;
    std::vector<bool> is_weight_;
    std::vector<std::uint64_t> start_ns_;
};

}  // namespace frostline
