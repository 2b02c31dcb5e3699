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

    HeapClock() noexcept : start_(now()) {}

    /// Number (2^40 of them) and moment as one word. Moments count quarters of a second from the
    /// heap's start and stay at the last that the word can hold, after 48 days.
    std::uint64_t stamp(std::uint64_t number) const noexcept {
        const std::uint64_t quarters = now() - start_;
        return (quarters < kMostQuarters ? quarters : kMostQuarters) << kNumberBits |
               (number & kNumberMask);
    }
    static std::uint64_t number_in(std::uint64_t stamp) noexcept { return stamp & kNumberMask; }
    /// Seconds from the stamp to now, to a third.
    double age_s(std::uint64_t stamp) const noexcept {
        const std::uint64_t then = start_ + (stamp >> kNumberBits);
        const std::uint64_t now = HeapClock::now();
        return now > then ? static_cast<double>(now - then) / 4 : 0;
    }

   private:
    static constexpr std::uint64_t kMostQuarters = (std::uint64_t{1} << (64 - kNumberBits)) - 1;

    // Quarters begin every 2^28 ns of a second, of which it has 3.7: a division would cost as much
    // as the clock.
    static std::uint64_t now() noexcept {
        timespec now{};
        clock_gettime(CLOCK_MONOTONIC_COARSE, &now);  // cannot fail for a clock that exists
        return static_cast<std::uint64_t>(now.tv_sec) * 4 +
               (static_cast<std::uint64_t>(now.tv_nsec) >> 28);
    }

    const std::uint64_t start_;
};

}  // namespace frostline
