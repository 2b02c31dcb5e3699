// Tensors are named by a slot and the slot's generation, never by an address: frameworks reuse
// addresses at once, and a stale id must be recognised and not mean somebody else's tensor.
#pragma once

#include <compare>
#include <cstdint>

namespace frostline {

/// The default value names no tensor. Cheap to copy; usable as a key.
struct TensorId {
    std::uint32_t slot = 0;
    std::uint32_t generation = 0;  ///< 0 is never a living tensor's

    constexpr bool valid() const noexcept { return generation != 0; }
    /// As one number, for interfaces that cannot carry a struct.
    constexpr std::uint64_t packed() const noexcept {
        return std::uint64_t{generation} << 32 | slot;
    }
    static constexpr TensorId from_packed(std::uint64_t packed) noexcept {
        return {static_cast<std::uint32_t>(packed), static_cast<std::uint32_t>(packed >> 32)};
    }

    friend auto operator<=>(const TensorId&, const TensorId&) = default;
};

}  // namespace frostline
