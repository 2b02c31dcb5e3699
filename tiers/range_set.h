// A set of bytes, as ranges that neither overlap nor touch. Whatever is refused for want of memory
// leaves it as it was: it tells what is resident, and nothing of that may be forgotten.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace frostline {

/// [start, end).
struct Range {
    std::uint64_t start = 0;
    std::uint64_t end = 0;

    std::uint64_t size_bytes() const noexcept { return end - start; }
    bool overlaps(const Range& other) const noexcept {
        return start < other.end && other.start < end;
    }
    friend bool operator==(const Range&, const Range&) = default;
};

/// Not thread-safe. add() and remove() cost O(log n) and what they merge or remove; they may throw
/// std::bad_alloc, and then nothing has changed.
class RangeSet {
   public:
    /// Adds the bytes of `range` that are not in yet.
    void add(const Range& range);
    /// Removes the bytes of `range` that are in. Allocates only where a range is cut in two.
    void remove(const Range& range);

    std::uint64_t size_bytes() const noexcept { return size_bytes_; }
    std::uint64_t size_bytes_in(const Range& window) const noexcept;
    /// The lowest range within `window`, cut to it.
    std::optional<Range> first_in(const Range& window) const noexcept;
    /// The highest range within `window`, cut to it.
    std::optional<Range> last_in(const Range& window) const noexcept;

   private:
    using Map = std::map<std::uint64_t, std::uint64_t>;  // end by start

    Map::const_iterator first_that_ends_behind(std::uint64_t position) const noexcept;

    Map ranges_;
    std::uint64_t size_bytes_ = 0;
};

}  // namespace frostline
