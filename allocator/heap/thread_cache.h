// Blocks that a thread freed, ready for its next request of the same size on the same stream. One
// thread uses a cache; others take from it when memory is short.
//
// Rule: everything in it is touched under its own lock, which its thread takes for each allocation
// and each free, and others to empty it, to take a part over, or to read. Whoever holds it takes no
// other lock but that of HeapPlaces, under which none is taken. A block in it is nobody else's to
// touch; its record says `cached` if it was freed, and `vacant` if it came here with its span.
#pragma once

#include "allocator/heap/allocation_record.h"
#include "allocator/heap/cache_lock.h"
#include "allocator/heap/heap_trace.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace frostline {

/// A block in the hands of whoever took it from a cache or from the heap's free memory.
struct CachedBlock {
    std::uint64_t address = 0;
    AllocationRecord* record = nullptr;
};

/// What a block must have in common with a request: the bytes that it spans, and its stream.
class CacheKey {
   public:
    static constexpr std::uint64_t kMostBytes = (std::uint64_t{1} << 48) - 1;

    CacheKey() = default;
    CacheKey(std::uint64_t block_bytes, StreamTag tag) noexcept
        : word_(std::uint64_t{tag} << 48 | block_bytes) {}
    std::uint64_t block_bytes() const noexcept { return word_ & kMostBytes; }
    /// Sizes and streams spread over `count` bins, a power of two up to 256: by the product's
    /// highest bits, which depend on all of the word.
    std::size_t bin(std::size_t count) const noexcept {
        return static_cast<std::size_t>((word_ * 0x9E3779B97F4A7C15U) >> 56) & (count - 1);
    }
    friend bool operator==(const CacheKey&, const CacheKey&) = default;

   private:
    std::uint64_t word_ = 0;
};

/// What passed through one cache: the sums over a heap's caches are the heap's own figures. A block
/// that one thread allocates and another frees makes one cache's figures grow and the other's fall.
struct CacheCounts {
    std::int64_t live_bytes = 0;        ///< as asked for
    std::int64_t live_block_bytes = 0;  ///< as spanned
    std::int64_t live_blocks = 0;
    std::uint64_t births = 0;
    std::uint64_t cached_bytes = 0;
    std::int64_t noted_live_bytes = 0;    ///< the part of live_bytes that the heap's peak knows of
    std::int64_t unnoted_peak_bytes = 0;  ///< the most that live_bytes was above that since
};

class alignas(128) ThreadCache {
   public:
    static constexpr std::size_t kBins = 256;

    ThreadCache() = default;
    ThreadCache(const ThreadCache&) = delete;
    ThreadCache& operator=(const ThreadCache&) = delete;

    /// Its thread holds it in each call below, or others do for what they do with it.
    CacheLock lock;

    /// The block of this kind that came last; its record is null when there is none.
    [[gnu::always_inline]] CachedBlock pop(CacheKey key) noexcept {
        Bin& bin = bins_[key.bin(kBins)];
        if (bin.key != key || bin.blocks.empty()) return {};
        const CachedBlock block = bin.blocks.back();
        bin.blocks.pop_back();
        // The next request of the kind will want its record, which is long out of the caches when
        // many blocks were freed at once.
        if (!bin.blocks.empty()) __builtin_prefetch(bin.blocks.back().record, 1);
        counts.cached_bytes -= key.block_bytes();
        return block;
    }

    /// False when the block cannot be kept: its bin holds blocks of another kind (then
    /// take_bin() makes room), or there is no memory for the list.
    [[gnu::always_inline]] bool push(CacheKey key, CachedBlock block) noexcept {
        Bin& bin = bins_[key.bin(kBins)];
        if (bin.key != key && !claim(bin, key)) return false;
        if (bin.blocks.size() == bin.blocks.capacity() && !grow(bin)) return false;
        bin.blocks.push_back(block);
        counts.cached_bytes += key.block_bytes();
        return true;
    }

    /// Bytes of the slots in it.
    std::uint64_t slot_bytes() const noexcept;
    /// Whether a block of this kind would be kept, unless memory runs out.
    bool keeps(CacheKey key) const noexcept {
        const Bin& bin = bins_[key.bin(kBins)];
        return bin.key == key || bin.blocks.empty();
    }
    /// Takes over half of what another has of this kind, which is held for this, too. True: some.
    bool steal(CacheKey key, ThreadCache& from) noexcept;

    /// Takes out what is in the bin of `key`, or in any; in no order.
    std::vector<CachedBlock> take_bin(CacheKey key) noexcept;
    std::vector<CachedBlock> take_next() noexcept;

    CacheCounts counts;
    /// Numbers for births that the heap gave this thread in advance: [next, end).
    std::uint64_t next_birth = 0;
    std::uint64_t births_end = 0;
    std::vector<HeapEvent> events;  ///< of this thread, if the heap is traced

   private:
    struct Bin {
        CacheKey key;
        std::vector<CachedBlock> blocks;
    };

    static bool claim(Bin& bin, CacheKey key) noexcept;
    static bool grow(Bin& bin) noexcept;
    std::vector<CachedBlock> take(Bin& bin) noexcept;

    std::array<Bin, kBins> bins_;
};

}  // namespace frostline
