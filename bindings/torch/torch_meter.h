// What PyTorch asks of its allocators' statistics: how much is in use, the most that ever was, and
// all that came and went. Exact at every moment, because programs size their batches by it.
#pragma once

#include "frostline/torch.h"

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace frostline {

/// One figure. Thread-safe, without a lock.
class TorchFigure {
   public:
    void add(std::uint64_t amount) noexcept {
        allocated_.fetch_add(amount, std::memory_order_relaxed);
        const std::uint64_t now = current_.fetch_add(amount, std::memory_order_relaxed) + amount;
        std::uint64_t peak = peak_.load(std::memory_order_relaxed);
        while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
        }
    }
    void remove(std::uint64_t amount) noexcept {
        freed_.fetch_add(amount, std::memory_order_relaxed);
        current_.fetch_sub(amount, std::memory_order_relaxed);
    }
    void reset_peak() noexcept { peak_.store(current_.load(std::memory_order_relaxed)); }
    void reset_accumulated() noexcept {
        allocated_.store(0, std::memory_order_relaxed);
        freed_.store(0, std::memory_order_relaxed);
    }
    frostline_torch_figure read() const noexcept {
        const std::uint64_t current = current_.load(std::memory_order_relaxed);
        return {current, std::max(current, peak_.load(std::memory_order_relaxed)),
                allocated_.load(std::memory_order_relaxed), freed_.load(std::memory_order_relaxed)};
    }

   private:
    std::atomic<std::uint64_t> current_{0};
    std::atomic<std::uint64_t> peak_{0};
    std::atomic<std::uint64_t> allocated_{0};
    std::atomic<std::uint64_t> freed_{0};
};

}  // namespace frostline
