// The host's page: what tiers round to, because room is given back to the system in pages.
#pragma once

#include <cstdint>

namespace frostline {

inline constexpr std::uint64_t kPageBytes = 4096;

/// Rounds up to whole pages. `size_bytes` is at most UINT64_MAX - kPageBytes.
constexpr std::uint64_t round_up_to_page(std::uint64_t size_bytes) noexcept {
    return (size_bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

}  // namespace frostline
