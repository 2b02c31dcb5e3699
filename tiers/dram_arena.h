// A range of reserved address space: which of it is free, and which free pages are resident still.
// At every moment cached <= free, and the resident pages of the arena are those of its extents and
// the cached ones.
#pragma once

#include "tiers/free_extents.h"
#include "tiers/result.h"
#include "tiers/system_calls.h"

#include <boost/icl/interval_set.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace frostline {

/// Keeps the books of address space that its owner has mapped. Not thread-safe: the tier that owns
/// it holds its lock. Ranges are offsets within the arena, in whole pages. Functions that are not
/// noexcept may throw std::bad_alloc.
class DramArena {
   public:
    using Range = boost::icl::right_open_interval<std::uint64_t>;

    DramArena(std::byte* start, std::uint64_t size_bytes, const SystemCalls& calls);

    std::byte* address(std::uint64_t offset) const noexcept { return start_ + offset; }
    bool contains(const std::byte* address) const noexcept {
        return address >= start_ && address < start_ + free_.capacity_bytes();
    }

    /// The free range that an extent of `size_bytes` would be given; nothing is changed.
    std::optional<Range> find(std::uint64_t size_bytes) const noexcept;
    /// Takes what find() found; its pages are no longer cached.
    void take(const Range& range);
    /// Makes a taken range free again; its pages stay resident, as cached. Ends the program if any
    /// of it is free already or lies outside.
    void give(const Range& range);

    std::uint64_t cached_bytes() const noexcept { return cached_bytes_; }
    std::uint64_t cached_bytes_in(const Range& range) const noexcept;
    /// Gives at least `size_bytes` of cached pages that lie outside of `keep` back to the system,
    /// or all of them; how many it were. Highest addresses first: best fit reuses the lowest ones
    /// first. Errors: what madvise() says; what was given back before stays so.
    Result<std::uint64_t> trim(std::uint64_t size_bytes, const Range& keep);

   private:
    using RangeSet = boost::icl::interval_set<std::uint64_t, std::less, Range>;

    void uncache(const Range& range);

    std::byte* start_;
    const SystemCalls* calls_;
    FreeExtents free_;
    RangeSet cached_;
    std::uint64_t cached_bytes_ = 0;
};

}  // namespace frostline
