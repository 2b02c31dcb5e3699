// How many bytes ahead of their use it pays to fetch. A use that had to wait doubles the window, at
// once; uses that found their tensor shrink it slowly, so that it hovers just above what is needed
// and leaves the rest of the budget to data that is not needed yet.
#pragma once

#include <algorithm>
#include <cstdint>

namespace frostline {

/// Not thread-safe. A feedback rule, not a prediction: multiplicative increase, slow decrease.
class PrefetchWindow {
   public:
    static constexpr std::uint64_t kSmallestBytes = std::uint64_t{16} << 20;
    static constexpr std::uint64_t kShrinkDivisor = 64;

    /// Between kSmallestBytes and `limit_bytes`, starting at a quarter of the limit.
    explicit PrefetchWindow(std::uint64_t limit_bytes) noexcept
        : limit_bytes_(limit_bytes), bytes_(limit_bytes / 4) {
        clamp();
    }

    std::uint64_t bytes() const noexcept { return bytes_; }

    void stalled() noexcept {
        bytes_ = std::max<std::uint64_t>(bytes_, 1) * 2;
        clamp();
    }
    void hit() noexcept {
        bytes_ -= bytes_ / kShrinkDivisor;
        clamp();
    }

   private:
    void clamp() noexcept {
        bytes_ = std::min(std::max(bytes_, std::min(kSmallestBytes, limit_bytes_)), limit_bytes_);
    }

    std::uint64_t limit_bytes_;
    std::uint64_t bytes_;
};

}  // namespace frostline
