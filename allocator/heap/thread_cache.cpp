// What is not on the way of every allocation.
#include "allocator/heap/thread_cache.h"

#include <sched.h>

#include <new>
#include <utility>

namespace frostline {
namespace {

constexpr std::size_t kFirstBlocks = 16;

}  // namespace

// Somebody empties the cache, or the thread is in the middle of a call and lost its processor.
void ThreadCache::wait() noexcept {
    sched_yield();
}

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
