// Which room of the swap tier is taken, and which of it has blocks behind it. Blocks of room that
// was given back are kept for the next extent, because writing to fresh blocks costs a good part
// of the bandwidth, as long as room was used that much within the last moments; beyond that they
// are given back. Bookkeeping only: no call is made here.
#pragma once

#include "tiers/free_extents.h"
#include "tiers/range_set.h"

#include <cstdint>
#include <optional>

namespace frostline {

/// Not thread-safe: the tier holds its lock. Functions that are not noexcept may throw
/// std::bad_alloc, and then nothing has changed but for hints.
class SwapRoom {
   public:
    struct Options {
        std::uint64_t capacity_bytes = 0;
        std::uint64_t growth_bytes = 0;  ///< blocks are got in such steps; so many are always kept
        std::uint64_t keep_ns = 0;       ///< how long a peak of use keeps its blocks
    };
    explicit SwapRoom(const Options& options) : options_(options), free_(options.capacity_bytes) {}

    /// Where an extent would go. Best fit.
    std::optional<std::uint64_t> find(std::uint64_t size_bytes) const noexcept {
        return free_.find(size_bytes);
    }
    /// The same with all its blocks there, for when no more can be had.
    std::optional<std::uint64_t> find_allocated(std::uint64_t size_bytes) const noexcept;

    /// The first part of [offset, offset + size) without blocks; empty if there is none.
    Range missing(std::uint64_t offset, std::uint64_t size_bytes) const noexcept;
    /// A growth step that starts with `needed`: as far as the room behind it is free.
    Range growth_step(const Range& needed) const noexcept;
    void add_blocks(const Range& range);

    void take(std::uint64_t offset, std::uint64_t size_bytes, std::uint64_t now_ns);
    void give(std::uint64_t offset, std::uint64_t size_bytes, std::uint64_t now_ns);

    /// A free range whose blocks are to be given back, which counts as without them from now on;
    /// empty if there is nothing to give back.
    Range next_hole(std::uint64_t now_ns, std::uint64_t most_bytes);

    /// All ranges with blocks.
    const RangeSet& allocated() const noexcept { return allocated_; }

    std::uint64_t capacity_bytes() const noexcept { return options_.capacity_bytes; }
    std::uint64_t allocated_bytes() const noexcept { return allocated_.size_bytes(); }

   private:
    void note_use(std::uint64_t now_ns) noexcept;

    Options options_;
    FreeExtents free_;
    RangeSet allocated_;
    std::uint64_t used_bytes_ = 0;
    // The peak of use in the present span of keep_ns and in the one before.
    std::uint64_t span_start_ns_ = 0;
    std::uint64_t span_peak_bytes_ = 0;
    std::uint64_t last_peak_bytes_ = 0;
};

}  // namespace frostline
