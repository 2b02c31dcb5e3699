// What is not on the way of every allocation.
#include "allocator/heap/thread_cache.h"

#include "allocator/heap/size_classes.h"

#include <algorithm>
#include <new>
#include <utility>

namespace frostline {
namespace {

constexpr std::size_t kFirstBlocks = 16;
constexpr std::size_t kMostStolen = 64;

}  // namespace

bool ThreadCache::claim(Bin& bin, CacheKey key) noexcept {
    if (!bin.blocks.empty()) return false;
    bin.key = key;
    return true;
}

bool ThreadCache::grow(Bin& bin) noexcept {
    try {
        bin.blocks.reserve(bin.blocks.empty() ? kFirstBlocks : bin.blocks.size() * 2);
        return true;
    } catch (const std::bad_alloc&) {
        return false;
    }
}

std::uint64_t ThreadCache::slot_bytes() const noexcept {
    std::uint64_t bytes = 0;
    for (const Bin& bin : bins_) {
        if (bin.key.block_bytes() <= kLargestSlot)
            bytes += bin.key.block_bytes() * bin.blocks.size();
    }
    return bytes;
}

// A few, because each block that changes hands costs the way of its record from one processor to
// another.
bool ThreadCache::steal(CacheKey key, ThreadCache& from) noexcept {
    std::vector<CachedBlock>& theirs = from.bins_[key.bin(kBins)].blocks;
    if (from.bins_[key.bin(kBins)].key != key) return false;
    const std::size_t most = std::min(kMostStolen, (theirs.size() + 1) / 2);
    std::size_t taken = 0;
    for (; taken < most && push(key, theirs.back()); ++taken) theirs.pop_back();
    from.counts.cached_bytes -= taken * key.block_bytes();
    return taken > 0;
}

std::vector<CachedBlock> ThreadCache::take_bin(CacheKey key) noexcept {
    return take(bins_[key.bin(kBins)]);
}

std::vector<CachedBlock> ThreadCache::take_next() noexcept {
    for (Bin& bin : bins_) {
        if (!bin.blocks.empty()) return take(bin);
    }
    return {};
}

std::vector<CachedBlock> ThreadCache::take(Bin& bin) noexcept {
    counts.cached_bytes -= bin.blocks.size() * bin.key.block_bytes();
    return std::exchange(bin.blocks, {});
}

}  // namespace frostline
