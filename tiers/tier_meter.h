// How full a tier is, readable from any thread without its lock. Only the tier writes it, under its
// lock, so that used never exceeds the capacity that the tier checks against.
#pragma once

#include "tiers/tier.h"

#include <atomic>

namespace frostline {

class TierMeter {
   public:
    /// Caller holds the tier's lock.
    void add(std::uint64_t size_bytes) noexcept {
        const std::uint64_t used = used_bytes() + size_bytes;
        if (used > peak_bytes_.load(std::memory_order_relaxed)) {
            peak_bytes_.store(used, std::memory_order_relaxed);
        }
        // Last, so that whoever sees the use sees the peak, too.
        used_bytes_.store(used, std::memory_order_release);
    }
    /// Caller holds the tier's lock.
    void subtract(std::uint64_t size_bytes) noexcept {
        used_bytes_.store(used_bytes() - size_bytes, std::memory_order_release);
    }
    /// Forgets what was reserved before, such as for measuring. Caller holds the tier's lock, or is
    /// alone.
    void restart_peak() noexcept { peak_bytes_.store(used_bytes(), std::memory_order_relaxed); }
    /// `error`: the errno that was the reason.
    void close(int error) noexcept {
        error_.store(error, std::memory_order_relaxed);
        open_.store(false, std::memory_order_release);
    }
    int error() const noexcept { return error_.load(std::memory_order_relaxed); }

    bool open() const noexcept { return open_.load(std::memory_order_acquire); }
    std::uint64_t used_bytes() const noexcept {
        return used_bytes_.load(std::memory_order_acquire);
    }
    TierUsage usage() const noexcept {
        const std::uint64_t used = used_bytes();
        return {used, peak_bytes_.load(std::memory_order_relaxed), open()};
    }

   private:
    std::atomic<std::uint64_t> used_bytes_{0};
    std::atomic<std::uint64_t> peak_bytes_{0};
    std::atomic<int> error_{0};
    std::atomic<bool> open_{true};
};

}  // namespace frostline
