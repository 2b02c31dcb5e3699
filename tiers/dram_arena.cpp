// Free ranges by best fit; cached ones as a set of intervals; registered ones by chunk.
#include "tiers/dram_arena.h"

#include "tiers/check.h"
#include "tiers/page.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

namespace frostline {

DramArena::DramArena(Options options)
    : options_(std::move(options)), free_(options_.memory.size()) {
    if (pinned() && !options_.memory.empty()) {
        registered_.resize(chunk_of(options_.memory.size() - 1) + 1);
        (void)advise_huge_pages({0, options_.memory.size()}, MADV_HUGEPAGE);
    }
}

DramArena::~DramArena() {
    if (!registered_.empty()) (void)options_.pins->remove(options_.memory);
}

std::optional<Range> DramArena::find(std::uint64_t size_bytes) const noexcept {
    if (closed_) return std::nullopt;
    const bool huge = options_.huge_pages && !pinned() && size_bytes >= kHugePageBytes;
    std::optional<std::uint64_t> offset = free_.find(size_bytes, huge ? kHugePageBytes : 1);
    if (!offset) offset = free_.find(size_bytes);
    if (!offset) return std::nullopt;
    return Range{*offset, *offset + size_bytes};
}

Range DramArena::footprint(const Range& range) const noexcept {
    if (!pinned()) return range;
    return {chunk(chunk_of(range.start)).start, chunk(chunk_of(range.end - 1)).end};
}

std::uint64_t DramArena::growth_bytes(const Range& range) const noexcept {
    if (!pinned()) return range.size_bytes() - cached_.size_bytes_in(range);
    std::uint64_t growth = 0;
    for (std::size_t i = chunk_of(range.start); i <= chunk_of(range.end - 1); ++i) {
        if (!registered_[i]) growth += chunk(i).size_bytes() - cached_.size_bytes_in(chunk(i));
    }
    return growth;
}

Result<void> DramArena::take(const Range& range) {
    if (pinned()) FROSTLINE_TRY_VOID(pin(range));
    free_.take_at(range.start, range.size_bytes());
    try {
        cached_.remove(range);
    } catch (...) {
        // Needs no memory: if the range was a whole free one, nothing in it had to be split.
        free_.give(range.start, range.size_bytes());
        throw;
    }
    // Without, it is slower to touch.
    if (!pinned()) (void)advise_huge_pages(range, MADV_HUGEPAGE);
    return ok();
}

void DramArena::give(const Range& range) {
    FROSTLINE_CHECK(range.start < range.end && range.end <= options_.memory.size(),
                    "a range given back lies outside its tier");
    // Where the advice cannot be taken back (a process may have only so many mappings), a small
    // extent could get a huge page that it is not charged for: better lose the addresses.
    if (!pinned() && !advise_huge_pages(range, MADV_NOHUGEPAGE) &&
        options_.calls->madvise(address(range.start), range.size_bytes(), MADV_DONTNEED) == 0) {
        return;
    }
    free_.give(range.start, range.size_bytes());
    try {
        cached_.add(range);
    } catch (const std::bad_alloc&) {
        // What cannot be noted as cached may not be resident. Pinned chunks are in the set already.
        (void)options_.calls->madvise(address(range.start), range.size_bytes(), MADV_DONTNEED);
    }
}

Result<std::uint64_t> DramArena::trim(std::uint64_t size_bytes, const Range& keep) {
    if (pinned()) return trim_chunks(size_bytes, keep);
    FROSTLINE_TRY(const std::uint64_t above,
                  trim_pages(size_bytes, {keep.end, options_.memory.size()}));
    if (above >= size_bytes) return above;
    FROSTLINE_TRY(const std::uint64_t below, trim_pages(size_bytes - above, {0, keep.start}));
    return above + below;
}

Result<std::uint64_t> DramArena::trim_pages(std::uint64_t size_bytes, const Range& window) {
    std::uint64_t trimmed = 0;
    while (trimmed < size_bytes) {
        const std::optional<Range> range = cached_.last_in(window);
        if (!range) break;
        const std::uint64_t wanted = round_up_to_page(size_bytes - trimmed);
        std::uint64_t start = range->end - std::min(wanted, range->size_bytes());
        // The kernel frees a huge page only as a whole.
        if (options_.huge_pages) {
            start = std::max(start / kHugePageBytes * kHugePageBytes, range->start);
        }
        FROSTLINE_TRY_VOID(give_back({start, range->end}));
        trimmed += range->end - start;
    }
    return trimmed;
}

void DramArena::drop(const Range& range) {
    if (!pinned()) (void)give_back(range);  // what the system does not take stays cached
}

Result<void> DramArena::give_back(const Range& range) {
    if (options_.calls->madvise(address(range.start), range.size_bytes(), MADV_DONTNEED) != 0) {
        return system_error(errno, "DRAM tier: the system does not take back {} bytes",
                            range.size_bytes());
    }
    cached_.remove(range);
    return ok();
}

std::span<std::byte> DramArena::bytes(const Range& range) const noexcept {
    return options_.memory.subspan(range.start, range.size_bytes());
}

bool DramArena::advise_huge_pages(const Range& range, int advice) const noexcept {
    if (!options_.huge_pages) return true;
    const std::uint64_t first = (range.start + kHugePageBytes - 1) / kHugePageBytes;
    const std::uint64_t end = range.end / kHugePageBytes;
    if (first >= end) return true;
    return options_.calls->madvise(address(first * kHugePageBytes), (end - first) * kHugePageBytes,
                                   advice) == 0;
}

std::size_t DramArena::chunk_of(std::uint64_t offset) const noexcept {
    return offset / options_.pin_chunk_bytes;
}

Range DramArena::chunk(std::size_t index) const noexcept {
    const std::uint64_t start = index * options_.pin_chunk_bytes;
    return {start,
            std::min<std::uint64_t>(start + options_.pin_chunk_bytes, options_.memory.size())};
}

Result<void> DramArena::try_pinning() {
    return pin(chunk(0));
}

Result<void> DramArena::pin(const Range& range) {
    for (std::size_t i = chunk_of(range.start); i <= chunk_of(range.end - 1); ++i) {
        if (registered_[i]) continue;
        cached_.add(chunk(i));  // before it is true, because it may throw
        const Result<void> added = options_.pins->add(bytes(chunk(i)));
        registered_[i] = true;
        if (added) continue;
        closed_ = true;
        (void)trim_chunks(UINT64_MAX, {});  // this one, and all that no extent is in
        return added;
    }
    return ok();
}

Result<std::uint64_t> DramArena::trim_chunks(std::uint64_t size_bytes, const Range& keep) {
    std::uint64_t trimmed = 0;
    for (std::size_t i = registered_.size(); i-- > 0 && trimmed < size_bytes;) {
        const Range chunk = this->chunk(i);
        const std::uint64_t cached = cached_.size_bytes_in(chunk);
        const bool used = registered_[i] && cached < chunk.size_bytes();
        if (cached == 0 || used || chunk.overlaps(keep)) continue;
        // What the driver does not let go of stays cached, and is tried again the next time.
        if (registered_[i] && !options_.pins->remove(bytes(chunk))) continue;
        registered_[i] = false;
        FROSTLINE_TRY_VOID(give_back(chunk));
        trimmed += cached;
    }
    return trimmed;
}

}  // namespace frostline
