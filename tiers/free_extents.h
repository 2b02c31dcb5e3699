// Which byte ranges of an address space are free. Neighbouring free ranges are always merged, so
// that no two of them touch. Best fit, lowest offset first among equals: same calls, same places.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace frostline {

/// Not thread-safe: the tier that owns it holds its lock. take() and give() are O(log n) in the
/// number of free ranges.
class FreeExtents {
   public:
    /// Everything in [0, capacity_bytes) is free.
    explicit FreeExtents(std::uint64_t capacity_bytes);

    /// The offset of a range of `size_bytes` > 0 that is free no longer, or nothing.
    std::optional<std::uint64_t> take(std::uint64_t size_bytes);

    /// Makes a taken range free again. Ends the program if any of it is free already or lies outside.
    void give(std::uint64_t offset, std::uint64_t size_bytes);

    /// Adds [capacity, capacity + size_bytes) as free.
    void grow(std::uint64_t size_bytes);

    std::uint64_t capacity_bytes() const noexcept { return capacity_bytes_; }
    std::uint64_t free_bytes() const noexcept { return free_bytes_; }
    /// The size of the largest free range: what take() can give at most.
    std::uint64_t largest_bytes() const noexcept;

   private:
    void insert(std::uint64_t offset, std::uint64_t size_bytes);
    void erase(std::map<std::uint64_t, std::uint64_t>::iterator range);

    std::uint64_t capacity_bytes_ = 0;
    std::uint64_t free_bytes_ = 0;
    std::map<std::uint64_t, std::uint64_t> by_offset_;                 // offset -> size
    std::set<std::pair<std::uint64_t, std::uint64_t>> by_size_;        // (size, offset)
};

}  // namespace frostline
