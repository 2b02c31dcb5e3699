// How much memory several heaps may have mapped together, and how often that was a near thing. What
// is used never exceeds the limit, except where the limit is lowered below what is used: then it
// only shrinks.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace frostline {

/// Thread-safe, without a lock. Outlives the heaps that it is given to.
class HeapBudget {
   public:
    explicit HeapBudget(std::uint64_t limit_bytes) noexcept : limit_bytes_(limit_bytes) {}

    /// Takes so many bytes out of the budget. False, and nothing is taken: it has not so many.
    bool take(std::uint64_t size_bytes) noexcept {
        std::uint64_t used = used_bytes_.load(std::memory_order_relaxed);
        do {
            const std::uint64_t limit = limit_bytes_.load(std::memory_order_relaxed);
            if (used > limit || size_bytes > limit - used) return false;
        } while (
            !used_bytes_.compare_exchange_weak(used, used + size_bytes, std::memory_order_relaxed));
        taken_bytes_.fetch_add(size_bytes, std::memory_order_relaxed);
        std::uint64_t peak = peak_bytes_.load(std::memory_order_relaxed);
        while (used + size_bytes > peak &&
               !peak_bytes_.compare_exchange_weak(peak, used + size_bytes,
                                                  std::memory_order_relaxed)) {
        }
        return true;
    }
    /// Gives back what take() gave.
    void give(std::uint64_t size_bytes) noexcept {
        used_bytes_.fetch_sub(size_bytes, std::memory_order_relaxed);
    }

    /// Whether take() would do.
    bool has(std::uint64_t size_bytes) const noexcept {
        const std::uint64_t used = used_bytes();
        const std::uint64_t limit = limit_bytes();
        return used <= limit && size_bytes <= limit - used;
    }

    void set_limit(std::uint64_t limit_bytes) noexcept {
        limit_bytes_.store(limit_bytes, std::memory_order_relaxed);
    }
    std::uint64_t limit_bytes() const noexcept {
        return limit_bytes_.load(std::memory_order_relaxed);
    }
    std::uint64_t used_bytes() const noexcept {
        return used_bytes_.load(std::memory_order_relaxed);
    }
    /// The most that was used since the start, or since reset_peak().
    std::uint64_t peak_bytes() const noexcept {
        return std::max(used_bytes(), peak_bytes_.load(std::memory_order_relaxed));
    }
    void reset_peak() noexcept { peak_bytes_.store(used_bytes(), std::memory_order_relaxed); }
    /// All that was ever taken.
    std::uint64_t taken_bytes() const noexcept {
        return taken_bytes_.load(std::memory_order_relaxed);
    }

    /// A request was served only after memory that lay idle had been given up for it, or streams
    /// had been waited for.
    void note_retry() noexcept { retries_.fetch_add(1, std::memory_order_relaxed); }
    std::uint64_t retries() const noexcept { return retries_.load(std::memory_order_relaxed); }

   private:
    std::atomic<std::uint64_t> limit_bytes_;
    std::atomic<std::uint64_t> used_bytes_{0};
    std::atomic<std::uint64_t> peak_bytes_{0};
    std::atomic<std::uint64_t> taken_bytes_{0};
    std::atomic<std::uint64_t> retries_{0};
};

}  // namespace frostline
