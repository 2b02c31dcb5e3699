// The moment of each birth in one word with its number, so that a leak can be told with its age at
// no cost that matters: the clock is the kernel's coarse one, which is read without a system call.
#pragma once

#include <cstdint>
#include <ctime>

namespace frostline {

class HeapClock {
   public:
    static constexpr unsigned kNumberBits = 40;
    static constexpr std::uint64_t kNumberMask = (std::uint64_t{1} << kNumberBits) - 1;

    HeapClock() noexcept : start_ms_(now_ms()) {}

    /// Number (2^40 of them) and moment as one word. Moments count quarters of a second from the
    /// heap's start and stay at the last that the word can hold, after 48 days.
    std::uint64_t stamp(std::uint64_t number) const noexcept {
        const std::uint64_t quarters = (now_ms() - start_ms_) / kQuarterMs;
        return (quarters < kMostQuarters ? quarters : kMostQuarters) << kNumberBits |
               (number & kNumberMask);
    }
    static std::uint64_t number_in(std::uint64_t stamp) noexcept { return stamp & kNumberMask; }
    /// Seconds from the stamp to now, to a quarter.
    double age_s(std::uint64_t stamp) const noexcept {
        const std::uint64_t then = (stamp >> kNumberBits) * kQuarterMs;
        const std::uint64_t now = now_ms() - start_ms_;
        return now > then ? static_cast<double>(now - then) / 1e3 : 0;
    }

   private:
    static constexpr std::uint64_t kQuarterMs = 250;
    static constexpr std::uint64_t kMostQuarters = (std::uint64_t{1} << (64 - kNumberBits)) - 1;

    static std::uint64_t now_ms() noexcept {
        timespec now{};
        clock_gettime(CLOCK_MONOTONIC_COARSE, &now);  // cannot fail for a clock that exists
        return static_cast<std::uint64_t>(now.tv_sec) * 1000 +
               static_cast<std::uint64_t>(now.tv_nsec) / 1'000'000;
    }

    const std::uint64_t start_ms_;
};

}  // namespace frostline
