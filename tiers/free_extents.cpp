// Best fit over two ordered indexes of the same free ranges.
#include "tiers/free_extents.h"

#include "tiers/check.h"

#include <iterator>

namespace frostline {

FreeExtents::FreeExtents(std::uint64_t capacity_bytes) {
    if (capacity_bytes > 0) grow(capacity_bytes);
}

std::optional<std::uint64_t> FreeExtents::take(std::uint64_t size_bytes) {
    const auto best = by_size_.lower_bound({size_bytes, 0});
    if (size_bytes == 0 || best == by_size_.end()) return std::nullopt;
    const auto [range_bytes, offset] = *best;
    erase(by_offset_.find(offset));
    if (range_bytes > size_bytes) insert(offset + size_bytes, range_bytes - size_bytes);
    return offset;
}

void FreeExtents::give(std::uint64_t offset, std::uint64_t size_bytes) {
    FROSTLINE_CHECK(size_bytes > 0 && offset + size_bytes <= capacity_bytes_,
                    "a range given back lies outside its tier");
    auto next = by_offset_.lower_bound(offset);
    if (next != by_offset_.end()) {
        FROSTLINE_CHECK(offset + size_bytes <= next->first, "a range was given back twice");
        if (offset + size_bytes == next->first) {
            size_bytes += next->second;
            const auto merged = next++;
            erase(merged);
        }
    }
    if (next != by_offset_.begin()) {
        const auto before = std::prev(next);
        FROSTLINE_CHECK(before->first + before->second <= offset, "a range was given back twice");
        if (before->first + before->second == offset) {
            offset = before->first;
            size_bytes += before->second;
            erase(before);
        }
    }
    insert(offset, size_bytes);
}

void FreeExtents::grow(std::uint64_t size_bytes) {
    const std::uint64_t start = capacity_bytes_;
    capacity_bytes_ += size_bytes;
    give(start, size_bytes);
}

std::uint64_t FreeExtents::largest_bytes() const noexcept {
    return by_size_.empty() ? 0 : by_size_.rbegin()->first;
}

void FreeExtents::insert(std::uint64_t offset, std::uint64_t size_bytes) {
    by_offset_.emplace(offset, size_bytes);
    by_size_.emplace(size_bytes, offset);
    free_bytes_ += size_bytes;
}

void FreeExtents::erase(std::map<std::uint64_t, std::uint64_t>::iterator range) {
    free_bytes_ -= range->second;
    by_size_.erase({range->second, range->first});
    by_offset_.erase(range);
}

}  // namespace frostline
