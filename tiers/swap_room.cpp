// Free ranges, allocated ranges, and the peak that decides what is kept.
#include "tiers/swap_room.h"

#include <algorithm>
#include <iterator>

namespace frostline {

std::optional<std::uint64_t> SwapRoom::find_allocated(std::uint64_t size_bytes) const noexcept {
    for (const auto& [offset, size] : free_.ranges()) {
        Range left{offset, offset + size};
        while (const auto blocks = allocated_.first_in(left)) {
            if (blocks->size_bytes() >= size_bytes) return blocks->start;
            left.start = blocks->end;
        }
    }
    return std::nullopt;
}

Range SwapRoom::missing(std::uint64_t offset, std::uint64_t size_bytes) const noexcept {
    Range gap{offset, offset + size_bytes};
    const auto first = allocated_.first_in(gap);
    if (first && first->start == offset) gap.start = first->end;
    if (const auto next = allocated_.first_in(gap)) gap.end = next->start;
    return gap;
}

Range SwapRoom::growth_step(const Range& needed) const noexcept {
    const auto free = std::prev(free_.ranges().upper_bound(needed.start));
    const std::uint64_t free_end = free->first + free->second;
    const std::uint64_t step = std::min(options_.growth_bytes, free_end - needed.start);
    return {needed.start, std::max(needed.end, needed.start + step)};
}

void SwapRoom::add_blocks(const Range& range) {
    allocated_.add(range);
}

void SwapRoom::take(std::uint64_t offset, std::uint64_t size_bytes, std::uint64_t now_ns) {
    free_.take_at(offset, size_bytes);
    used_bytes_ += size_bytes;
    note_use(now_ns);
}

void SwapRoom::give(std::uint64_t offset, std::uint64_t size_bytes, std::uint64_t now_ns) {
    free_.give(offset, size_bytes);
    used_bytes_ -= size_bytes;
    note_use(now_ns);
}

void SwapRoom::note_use(std::uint64_t now_ns) noexcept {
    if (now_ns - span_start_ns_ >= options_.keep_ns) {
        last_peak_bytes_ = options_.keep_ns > 0 ? span_peak_bytes_ : 0;
        span_peak_bytes_ = 0;
        span_start_ns_ = now_ns;
    }
    span_peak_bytes_ = std::max(span_peak_bytes_, used_bytes_);
}

// From the end, because best fit prefers the start. A step's worth of hysteresis keeps a hole from
// being punched and filled again for every extent.
Range SwapRoom::next_hole(std::uint64_t now_ns, std::uint64_t most_bytes) {
    note_use(now_ns);
    const std::uint64_t peak = std::max(span_peak_bytes_, last_peak_bytes_);
    if (allocated_bytes() < peak + 2 * options_.growth_bytes) return {};
    const std::uint64_t excess = allocated_bytes() - peak - options_.growth_bytes;
    const auto& ranges = free_.ranges();
    // C++20 has views::reverse for this, which clang 14 cannot compile with GCC's library.
    for (auto free = ranges.rbegin(); free != ranges.rend(); ++free) {  // NOLINT
        auto hole = allocated_.last_in({free->first, free->first + free->second});
        if (!hole) continue;
        hole->start = hole->end - std::min({excess, most_bytes, hole->size_bytes()});
        allocated_.remove(*hole);
        return *hole;
    }
    return {};
}

}  // namespace frostline
