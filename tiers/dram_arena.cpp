// Free ranges by best fit; cached ones as a set of intervals.
#include "tiers/dram_arena.h"

#include "tiers/page.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

namespace frostline {

DramArena::DramArena(std::byte* start, std::uint64_t size_bytes, const SystemCalls& calls)
    : start_(start), calls_(&calls), free_(size_bytes) {}

std::optional<DramArena::Range> DramArena::find(std::uint64_t size_bytes) const noexcept {
    const std::optional<std::uint64_t> offset = free_.find(size_bytes);
    if (!offset) return std::nullopt;
    return Range(*offset, *offset + size_bytes);
}

void DramArena::take(const Range& range) {
    uncache(range);
    (void)free_.take(range.upper() - range.lower());  // last, because it cannot fail
}

void DramArena::give(const Range& range) {
    const std::uint64_t size_bytes = range.upper() - range.lower();
    free_.give(range.lower(), size_bytes);
    cached_.add(range);
    cached_bytes_ += size_bytes;
}

std::uint64_t DramArena::cached_bytes_in(const Range& range) const noexcept {
    std::uint64_t bytes = 0;
    if (range.lower() == range.upper()) return 0;  // no range for equal_range()
    const auto [first, last] = cached_.equal_range(range);
    for (auto each = first; each != last; ++each) {
        bytes += std::min(each->upper(), range.upper()) - std::max(each->lower(), range.lower());
    }
    return bytes;
}

Result<std::uint64_t> DramArena::trim(std::uint64_t size_bytes, const Range& keep) {
    std::uint64_t trimmed = 0;
    if (size_bytes == 0) return trimmed;
    const std::uint64_t wanted = round_up_to_page(size_bytes);
    RangeSet others = cached_;
    others.subtract(keep);
    for (auto range = others.rbegin(); trimmed < wanted && range != others.rend(); ++range) {
        const std::uint64_t give = std::min(wanted - trimmed, range->upper() - range->lower());
        const std::uint64_t start = range->upper() - give;
        if (calls_->madvise(start_ + start, give, MADV_DONTNEED) != 0) {
            return system_error(errno, "DRAM tier: the system does not take back {} bytes", give);
        }
        uncache(Range(start, start + give));
        trimmed += give;
    }
    return trimmed;
}

void DramArena::uncache(const Range& range) {
    const std::uint64_t bytes = cached_bytes_in(range);
    cached_.subtract(range);
    cached_bytes_ -= bytes;
}

}  // namespace frostline
