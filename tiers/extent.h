// The unit that moves: a run of bytes in one tier.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace frostline {

/// The medium a tier lives on. Copy paths are chosen by the kinds of both ends.
enum class TierKind : std::uint8_t { device, dram, pmem, swap };
inline constexpr std::size_t kTierKinds = 4;

constexpr std::string_view name(TierKind kind) noexcept {
    constexpr std::array<std::string_view, kTierKinds> kNames{"device", "dram", "pmem", "swap"};
    return kNames[static_cast<std::size_t>(kind)];
}

/// Names one tier of a manager: its place in the order from fastest (0) to slowest.
enum class TierId : std::uint8_t {};
inline constexpr std::size_t kMaxTiers = 8;

constexpr std::size_t index_of(TierId id) noexcept {
    return static_cast<std::size_t>(id);
}

/// `length_bytes` bytes at `offset` of a tier's address space. What an offset counts from is the
/// tier's own affair: the start of a file, or for host memory the address itself.
struct Extent {
    TierId tier{};
    std::uint64_t offset = 0;
    std::uint64_t length_bytes = 0;

    friend bool operator==(const Extent&, const Extent&) = default;
};

}  // namespace frostline
