// Best fit over two ordered indexes of the same free ranges.
#include "tiers/free_extents.h"

#include "tiers/check.h"

#include <iterator>
#include <utility>

namespace frostline {

FreeExtents::FreeExtents(std::uint64_t capacity_bytes) : capacity_bytes_(capacity_bytes) {
    if (capacity_bytes > 0) give(0, capacity_bytes);
}

std::optional<std::uint64_t> FreeExtents::find(std::uint64_t size_bytes,
                                               std::uint64_t alignment_bytes) const noexcept {
    if (size_bytes == 0) return std::nullopt;
    for (auto each = by_size_.lower_bound({size_bytes, 0}); each != by_size_.end(); ++each) {
        const auto& [range_bytes, offset] = *each;
        const std::uint64_t skipped =
            (alignment_bytes - offset % alignment_bytes) % alignment_bytes;
        if (skipped <= range_bytes - size_bytes) return offset + skipped;
    }
    return std::nullopt;
}

std::optional<std::uint64_t> FreeExtents::take(std::uint64_t size_bytes) noexcept {
    const std::optional<std::uint64_t> offset = find(size_bytes);
    if (!offset) return std::nullopt;
    const auto range = by_offset_.find(*offset);
    if (range->second > size_bytes) {
        change(range, *offset + size_bytes, range->second - size_bytes);
    } else {
        erase(range);
    }
    free_bytes_ -= size_bytes;
    return offset;
}

void FreeExtents::take_at(std::uint64_t offset, std::uint64_t size_bytes) {
    const auto range = std::prev(by_offset_.upper_bound(offset));
    const std::uint64_t start = range->first;
    const std::uint64_t behind = start + range->second - offset - size_bytes;
    if (offset == start && behind > 0) {
        change(range, offset + size_bytes, behind);
        free_bytes_ -= size_bytes;
        return;
    }
    if (behind > 0) {
        // Its own range first: that is what may need memory.
        by_size_.emplace(behind, offset + size_bytes);
        try {
            by_offset_.emplace(offset + size_bytes, behind);
        } catch (...) {
            by_size_.erase({behind, offset + size_bytes});
            throw;
        }
    }
    if (offset > start) {
        change(range, start, offset - start);
    } else {
        erase(range);
    }
    free_bytes_ -= size_bytes;
}

void FreeExtents::give(std::uint64_t offset, std::uint64_t size_bytes) {
    FROSTLINE_CHECK(
        size_bytes > 0 && size_bytes <= capacity_bytes_ && offset <= capacity_bytes_ - size_bytes,
        "a range given back lies outside its tier");
    const auto next = by_offset_.lower_bound(offset);
    const auto before = next == by_offset_.begin() ? by_offset_.end() : std::prev(next);
    const bool has_next = next != by_offset_.end();
    const bool has_before = before != by_offset_.end();
    FROSTLINE_CHECK((!has_next || offset + size_bytes <= next->first) &&
                        (!has_before || before->first + before->second <= offset),
                    "a range was given back twice");
    const bool joins_next = has_next && offset + size_bytes == next->first;
    if (has_before && before->first + before->second == offset) {
        const std::uint64_t behind = joins_next ? next->second : 0;
        if (joins_next) erase(next);
        change(before, before->first, before->second + size_bytes + behind);
    } else if (joins_next) {
        change(next, offset, size_bytes + next->second);
    } else {
        const auto range = by_offset_.emplace(offset, size_bytes).first;
        try {
            by_size_.emplace(size_bytes, offset);
        } catch (...) {
            by_offset_.erase(range);
            throw;
        }
    }
    free_bytes_ += size_bytes;
}

// Reuses the nodes of both indexes, so that no memory is needed to give a part of a range away.
void FreeExtents::change(std::map<std::uint64_t, std::uint64_t>::iterator range,
                         std::uint64_t offset, std::uint64_t size_bytes) noexcept {
    auto by_size = by_size_.extract({range->second, range->first});
    auto by_offset = by_offset_.extract(range);
    by_size.value() = {size_bytes, offset};
    by_offset.key() = offset;
    by_offset.mapped() = size_bytes;
    by_size_.insert(std::move(by_size));
    by_offset_.insert(std::move(by_offset));
}

void FreeExtents::erase(std::map<std::uint64_t, std::uint64_t>::iterator range) noexcept {
    by_size_.erase({range->second, range->first});
    by_offset_.erase(range);
}

}  // namespace frostline
