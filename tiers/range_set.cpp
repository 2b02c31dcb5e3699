// What needs a new entry makes it before anything is changed.
#include "tiers/range_set.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace frostline {

void RangeSet::add(const Range& range) {
    if (range.start >= range.end) return;
    const std::uint64_t new_bytes = range.size_bytes() - size_bytes_in(range);
    // What touches the range is merged with it.
    auto each = first_that_ends_behind(range.start == 0 ? 0 : range.start - 1);
    if (each == ranges_.end() || each->first > range.end) {
        ranges_.emplace(range.start, range.end);
    } else {
        auto merged = ranges_.extract(each++);
        merged.key() = std::min(merged.key(), range.start);
        merged.mapped() = std::max(merged.mapped(), range.end);
        while (each != ranges_.end() && each->first <= range.end) {
            merged.mapped() = std::max(merged.mapped(), each->second);
            each = ranges_.erase(each);
        }
        ranges_.insert(std::move(merged));
    }
    size_bytes_ += new_bytes;
}

void RangeSet::remove(const Range& range) {
    const std::uint64_t lost_bytes = size_bytes_in(range);
    if (lost_bytes == 0) return;
    auto each = first_that_ends_behind(range.start);
    if (each->first < range.start) {
        const std::uint64_t end = each->second;
        if (end > range.end) ranges_.emplace(range.end, end);
        ranges_.find(each->first)->second = range.start;
        ++each;
    }
    while (each != ranges_.end() && each->second <= range.end) each = ranges_.erase(each);
    if (each != ranges_.end() && each->first < range.end) {
        auto rest = ranges_.extract(each);
        rest.key() = range.end;
        ranges_.insert(std::move(rest));
    }
    size_bytes_ -= lost_bytes;
}

std::uint64_t RangeSet::size_bytes_in(const Range& window) const noexcept {
    std::uint64_t bytes = 0;
    for (auto each = first_that_ends_behind(window.start);
         each != ranges_.end() && each->first < window.end; ++each) {
        bytes += std::min(each->second, window.end) - std::max(each->first, window.start);
    }
    return bytes;
}

std::optional<Range> RangeSet::first_in(const Range& window) const noexcept {
    const auto first = first_that_ends_behind(window.start);
    if (first == ranges_.end() || first->first >= window.end) return std::nullopt;
    if (window.start >= window.end) return std::nullopt;
    return Range{std::max(first->first, window.start), std::min(first->second, window.end)};
}

std::optional<Range> RangeSet::last_in(const Range& window) const noexcept {
    const auto behind = ranges_.lower_bound(window.end);
    if (behind == ranges_.begin()) return std::nullopt;
    const auto last = std::prev(behind);
    const Range found{std::max(last->first, window.start), std::min(last->second, window.end)};
    if (found.start >= found.end) return std::nullopt;
    return found;
}

RangeSet::Map::const_iterator RangeSet::first_that_ends_behind(
    std::uint64_t position) const noexcept {
    const auto behind = ranges_.upper_bound(position);
    if (behind == ranges_.begin()) return behind;
    const auto before = std::prev(behind);
    return before->second > position ? before : behind;
}

}  // namespace frostline
