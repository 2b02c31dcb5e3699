// Free ranges, allocated ranges, and the peak that decides what is kept.
#include "tiers/swap_room.h"

#include <algorithm>
#include <iterator>

namespace frostline {
namespace {

std::uint64_t size_of(const SwapRoom::Range& range) noexcept {
    return range.upper() - range.lower();
}

}  // namespace

std::optional<std::uint64_t> SwapRoom::find_allocated(std::uint64_t size_bytes) const {
    for (const auto& [offset, size] : free_.ranges()) {
        if (size < size_bytes) continue;
        const auto [first, last] = allocated_.equal_range(Range(offset, offset + size));
        for (auto each = first; each != last; ++each) {
            const std::uint64_t start = std::max(each->lower(), offset);
            if (std::min(each->upper(), offset + size) >= start + size_bytes) return start;
        }
    }
    return std::nullopt;
}

SwapRoom::Range SwapRoom::missing(std::uint64_t offset, std::uint64_t size_bytes) const {
    const std::uint64_t end = offset + size_bytes;
    const auto behind = allocated_.find(offset);
    const std::uint64_t start = behind == allocated_.end() ? offset : behind->upper();
    if (start >= end) return {end, end};
    const auto next = allocated_.lower_bound(Range(start, end));
    return {start, next == allocated_.end() ? end : std::min(end, next->lower())};
}

SwapRoom::Range SwapRoom::growth_step(const Range& needed) const noexcept {
    const auto free = std::prev(free_.ranges().upper_bound(needed.lower()));
    const std::uint64_t free_end = free->first + free->second;
    const std::uint64_t step_end =
        needed.lower() + std::min(options_.growth_bytes, free_end - needed.lower());
    return {needed.lower(), std::max(needed.upper(), step_end)};
}

void SwapRoom::add_blocks(const Range& range) {
    allocated_.add(range);
    allocated_bytes_ = boost::icl::length(allocated_);
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
SwapRoom::Range SwapRoom::begin_punch(std::uint64_t now_ns) {
    note_use(now_ns);
    const std::uint64_t peak = std::max(span_peak_bytes_, last_peak_bytes_);
    if (allocated_bytes_ < peak + 2 * options_.growth_bytes) return {};
    const std::uint64_t excess = allocated_bytes_ - peak - options_.growth_bytes;
    for (auto free = free_.ranges().rbegin(); free != free_.ranges().rend(); ++free) {
        const Range range(free->first, free->first + free->second);
        const auto [first, last] = allocated_.equal_range(range);
        if (first == last) continue;
        const auto highest = std::prev(last);
        const std::uint64_t end = std::min(highest->upper(), range.upper());
        const std::uint64_t start = std::max(highest->lower(), range.lower());
        const Range hole(end - std::min(excess, end - start), end);
        free_.take_at(hole.lower(), size_of(hole));
        return hole;
    }
    return {};
}

void SwapRoom::end_punch(const Range& range, bool punched) {
    if (punched) {
        allocated_.subtract(range);
        allocated_bytes_ = boost::icl::length(allocated_);
    }
    free_.give(range.lower(), size_of(range));
}

}  // namespace frostline
