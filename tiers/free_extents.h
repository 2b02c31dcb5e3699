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

    /// The offset that take() would give; with an alignment, the best offset that is a multiple of
    /// it, for take_at(). Also walks the free ranges that are too small only because of it.
    std::optional<std::uint64_t> find(std::uint64_t size_bytes,
                                      std::uint64_t alignment_bytes = 1) const noexcept;

    /// The offset of a range of `size_bytes` > 0 that is free no longer, or nothing. Allocates
    /// nothing.
    std::optional<std::uint64_t> take(std::uint64_t size_bytes) noexcept;

    /// Takes [offset, offset + size_bytes), all of which is free. May throw std::bad_alloc, and
    /// then nothing has changed.
    void take_at(std::uint64_t offset, std::uint64_t size_bytes);

    /// Makes a taken range free again. Ends the program if any of it is free already or lies
    /// outside. May throw std::bad_alloc, and then nothing has changed.
    void give(std::uint64_t offset, std::uint64_t size_bytes);

    std::uint64_t capacity_bytes() const noexcept { return capacity_bytes_; }
    std::uint64_t free_bytes() const noexcept { return free_bytes_; }
    /// All free ranges: offset to size, in the order of their offsets.
    const std::map<std::uint64_t, std::uint64_t>& ranges() const noexcept { return by_offset_; }

   private:
    void change(std::map<std::uint64_t, std::uint64_t>::iterator range, std::uint64_t offset,
                std::uint64_t size_bytes) noexcept;
    void erase(std::map<std::uint64_t, std::uint64_t>::iterator range) noexcept;

    std::uint64_t capacity_bytes_ = 0;
    std::uint64_t free_bytes_ = 0;
    std::map<std::uint64_t, std::uint64_t> by_offset_;           // offset -> size
    std::set<std::pair<std::uint64_t, std::uint64_t>> by_size_;  // (size, offset)
};

}  // namespace frostline
