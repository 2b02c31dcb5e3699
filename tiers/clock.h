// The clock that everything measures with, where no other is injected.
#pragma once

#include <chrono>
#include <cstdint>

namespace frostline {

inline std::uint64_t monotonic_ns() noexcept {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

}  // namespace frostline
