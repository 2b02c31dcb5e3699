// The sizes of small blocks. A span holds slots of one size, so each size is as much of a span as
// divides it into a whole number of slots with little left over; sizes in between round up.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace frostline {

inline constexpr std::uint64_t kSpanBytes = std::uint64_t{64} << 10;
/// Every block starts at a multiple of this, as the alignment of the CUDA runtime's allocations and
/// of kernels' vector accesses asks.
inline constexpr std::uint64_t kSlotUnitBytes = 512;
inline constexpr std::uint64_t kSmallestBlock = kSlotUnitBytes;
inline constexpr std::uint64_t kLargestSlot = std::uint64_t{8} << 10;

/// Slots in a span, from the smallest size to the largest.
inline constexpr std::array<std::uint16_t, 13> kSlotsOfClass = {128, 64, 42, 32, 25, 21, 18,
                                                                16,  14, 12, 11, 9,  8};
inline constexpr std::size_t kSizeClasses = kSlotsOfClass.size();

namespace detail {

// Tables, because a division takes as long as the rest of a lookup.
consteval std::array<std::uint32_t, kSizeClasses> bytes_by_class() {
    std::array<std::uint32_t, kSizeClasses> bytes{};
    for (std::size_t i = 0; i < kSizeClasses; ++i) {
        bytes[i] = kSpanBytes / kSlotsOfClass[i] / kSlotUnitBytes * kSlotUnitBytes;
    }
    return bytes;
}
inline constexpr auto kBytesByClass = bytes_by_class();

}  // namespace detail

constexpr std::uint64_t class_bytes(std::size_t size_class) noexcept {
    return detail::kBytesByClass[size_class];
}

namespace detail {

consteval std::array<std::uint8_t, kLargestSlot / kSlotUnitBytes + 1> classes_by_units() {
    std::array<std::uint8_t, kLargestSlot / kSlotUnitBytes + 1> classes{};
    std::uint8_t size_class = 0;
    for (std::size_t units = 1; units < classes.size(); ++units) {
        if (units * kSlotUnitBytes > class_bytes(size_class)) ++size_class;
        classes[units] = size_class;
    }
    return classes;
}
inline constexpr auto kClassesByUnits = classes_by_units();

}  // namespace detail

/// The class that holds blocks of `size_bytes`, at least 1 and at most kLargestSlot.
constexpr std::size_t class_of(std::uint64_t size_bytes) noexcept {
    return detail::kClassesByUnits[(size_bytes + kSlotUnitBytes - 1) / kSlotUnitBytes];
}

static_assert(class_bytes(0) == kSmallestBlock && class_bytes(kSizeClasses - 1) == kLargestSlot);

}  // namespace frostline
