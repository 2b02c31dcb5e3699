// The heap's fast layer: what allocate() and free() do when a thread's cache serves them.
// Part of heap.h, for those who instantiate Heap.
#pragma once

#include "allocator/heap/heap.h"

#include <algorithm>
#include <new>

namespace frostline {

template <HeapBacking Backing>
Result<HeapThread*> Heap<Backing>::thread_for(StreamHandle stream) noexcept {
    HeapThread* thread = caches_->find();
    if (thread == nullptr) thread = caches_->enter();
    if (thread == nullptr) return nullptr;
    if (names(*thread, stream)) return thread;
    ThreadCache& cache = *thread->cache;
    const auto known = std::find_if(
        cache.named_streams.begin(), cache.named_streams.end(), [&](const auto& named) {
            return named.series == thread->series && named.stream == stream;
        });
    if (known != cache.named_streams.end()) {
        thread->tag = known->tag;
    } else {
        const std::lock_guard lock(mutex_);
        FROSTLINE_TRY(thread->tag, admit(stream));
        cache.named_streams[cache.next_named] = {thread->series, stream, thread->tag};
        cache.next_named = (cache.next_named + 1) % cache.named_streams.size();
    }
    thread->stream = stream;
    return thread;
}

template <HeapBacking Backing>
Result<StreamTag> Heap<Backing>::admit(StreamHandle stream) noexcept {
    if (const StreamTag known = ledger_.find(stream); known != kNoStream) return known;
    // Room first, so that there is some for each tag that the ledger has given.
    const auto next =
        static_cast<StreamTag>(std::min(ledger_.count() + 1, StreamLedger<Backing>::kMostStreams));
    try {
        uses_.admit(next);
    } catch (const std::bad_alloc&) {
        return out_of_records();
    }
    if (!large_->admit(next) || !small_->admit(next) || !spans_->admit(next)) {
        return out_of_records();
    }
    return ledger_.tag_of(stream);
}

template <HeapBacking Backing>
Result<void*> Heap<Backing>::allocate(std::uint64_t size_bytes, StreamHandle stream,
                                      std::uint64_t alignment_bytes) noexcept {
    if (size_bytes == 0) return nullptr;
    if (fork_guard_->in_child()) [[unlikely]]
        return forked();
    if (size_bytes > capacity_bytes_ || !usable(alignment_bytes)) [[unlikely]] {
        return refuse(size_bytes, alignment_bytes);
    }
    HeapThread* thread = caches_->find();
    if (thread == nullptr || !names(*thread, stream)) [[unlikely]] {
        FROSTLINE_TRY(thread, thread_for(stream));
    }
    Request request{size_bytes, alignment_bytes, 0, thread == nullptr ? kNoStream : thread->tag};
    request.block_bytes = block_bytes_for(size_bytes, alignment_bytes);
    ThreadCache* const cache = thread == nullptr ? nullptr : thread->cache;
    if (cache != nullptr && alignment_bytes <= HeapSpace::kUnitBytes) [[likely]] {
        cache->lock.lock();
        const CachedBlock block = cache->pop({request.block_bytes, request.tag});
        if (block.record != nullptr) [[likely]] {
            begin_life(request, block, *cache);
            cache->lock.unlock();
            return reinterpret_cast<void*>(block.address);
        }
        cache->lock.unlock();
    }
    return allocate_slowly(request, cache, stream);
}

template <HeapBacking Backing>
Result<void*> Heap<Backing>::allocate_slowly(Request request, ThreadCache* cache,
                                             StreamHandle stream) noexcept {
    CachedBlock block;
    {
        std::unique_lock lock(mutex_);
        if constexpr (Backing::kHasStreams) {
            if (cache == nullptr) {
                FROSTLINE_TRY(request.tag, admit(stream));
            }
        }
        FROSTLINE_TRY(block, supply_or_wait(request, cache, lock));
        if (cache == nullptr) {
            begin_life(request, block, uncached_);
            return reinterpret_cast<void*>(block.address);
        }
    }
    cache->lock.lock();
    begin_life(request, block, *cache);
    cache->lock.unlock();
    return reinterpret_cast<void*>(block.address);
}

// The caller holds the cache's lock, and the block is nobody else's.
template <HeapBacking Backing>
[[gnu::always_inline]] inline void Heap<Backing>::begin_life(const Request& request,
                                                             CachedBlock block,
                                                             ThreadCache& cache) noexcept {
    if (cache.next_birth == cache.births_end) [[unlikely]] {
        cache.next_birth = next_birth_.fetch_add(kBirthsAtOnce, std::memory_order_relaxed);
        cache.births_end = cache.next_birth + kBirthsAtOnce;
    }
    AllocationRecord& record = *block.record;
    record.birth = clock_.stamp(cache.next_birth++);
    record.stream = request.tag;
    record.size_bytes = request.size_bytes;
    if (++record.generation == 0) record.generation = 1;  // 0 is no living tensor's
    if (noting_) [[unlikely]]
        note_birth(block, cache);
    record.state.store(AllocationState::live, std::memory_order_release);
    CacheCounts& counts = cache.counts;
    counts.live_bytes += static_cast<std::int64_t>(request.size_bytes);
    counts.live_block_bytes += static_cast<std::int64_t>(request.block_bytes);
    ++counts.live_blocks;
    ++counts.births;
    note_peak(counts);
}

// A thread holds the cache's lock for both, and the block is nobody else's. They are not inlined,
// so that the caller's frames begin behind them.
template <HeapBacking Backing>
[[gnu::noinline]] void Heap<Backing>::note_birth(CachedBlock block, ThreadCache& cache) noexcept {
    note(block, HeapEvent::Kind::birth, cache);
    if (places_ != nullptr) places_->born(block.address);
}

template <HeapBacking Backing>
[[gnu::noinline]] void Heap<Backing>::note_death(CachedBlock block, ThreadCache& cache) noexcept {
    note(block, HeapEvent::Kind::death, cache);
    if (places_ != nullptr) places_->died(block.address);
}

template <HeapBacking Backing>
void Heap<Backing>::note(CachedBlock block, HeapEvent::Kind kind, ThreadCache& cache) noexcept {
    if (!options_.traced) return;
    const std::uint64_t number = HeapClock::number_in(block.record->birth);
    trace_.add(cache.events, {0, number, block.record->size_bytes, kind});
}

// Threads tell the heap of what they hold in steps, so that the sum's peak costs them nothing. What
// a thread held most between two of its steps is kept: so the peak of one thread is exact.
template <HeapBacking Backing>
[[gnu::always_inline]] inline void Heap<Backing>::note_peak(CacheCounts& counts) noexcept {
    const std::int64_t unnoted = counts.live_bytes - counts.noted_live_bytes;
    if (unnoted > counts.unnoted_peak_bytes) counts.unnoted_peak_bytes = unnoted;
    if (unnoted >= peak_step_bytes_ || unnoted <= -peak_step_bytes_) [[unlikely]] {
        tell_peak(counts);
    }
}

template <HeapBacking Backing>
void Heap<Backing>::tell_peak(CacheCounts& counts) noexcept {
    const std::int64_t unnoted = counts.live_bytes - counts.noted_live_bytes;
    const std::int64_t most =
        noted_live_bytes_.fetch_add(unnoted, std::memory_order_relaxed) + counts.unnoted_peak_bytes;
    std::int64_t peak = peak_live_bytes_.load(std::memory_order_relaxed);
    while (most > peak && !peak_live_bytes_.compare_exchange_weak(peak, most)) {
    }
    counts.noted_live_bytes = counts.live_bytes;
    counts.unnoted_peak_bytes = 0;
}

template <HeapBacking Backing>
[[gnu::always_inline]] inline typename Heap<Backing>::Found Heap<Backing>::find(
    std::uint64_t address) const noexcept {
    Found found;
    if (HeapSpan* const span = spans_->span_at(address); span != nullptr) {
        if (const auto slot = span->slot_at(address); slot.has_value()) {
            found.record = &span->record(*slot);
            found.span = span;
        }
        return found;
    }
    const std::uint32_t number = index_.find(address);
    if (number != AddressIndex::kNone) {
        found.block = static_cast<HeapBlock*>(records_->at(number * kNumbersInARecord));
        found.record = &found.block->record;
    }
    return found;
}

// A reader may miss an entry of the index that a removal moves just then; under the lock none
// moves.
template <HeapBacking Backing>
[[gnu::noinline]] typename Heap<Backing>::Found Heap<Backing>::find_locked(
    std::uint64_t address) const noexcept {
    const std::lock_guard lock(mutex_);
    return find(address);
}

// Inline, and copied member by member: so what was found stays in registers, where the compiler
// would otherwise store it in parts and wait to load it whole.
template <HeapBacking Backing>
[[gnu::always_inline]] inline typename Heap<Backing>::Found Heap<Backing>::find_surely(
    std::uint64_t address) const noexcept {
    Found found = find(address);
    if (found.record == nullptr) [[unlikely]] {
        const Found again = find_locked(address);
        found.record = again.record;
        found.span = again.span;
        found.block = again.block;
    }
    return found;
}

// Takes a living allocation out of everybody else's reach. A record may have been reused since it
// was found, if the caller frees what another thread frees, too: so it is looked at again.
template <HeapBacking Backing>
[[gnu::always_inline]] inline bool Heap<Backing>::claim(const Found& found,
                                                        std::uint64_t address) noexcept {
    AllocationState expected = AllocationState::live;
    if (!found.record->state.compare_exchange_strong(expected, AllocationState::cached,
                                                     std::memory_order_acq_rel,
                                                     std::memory_order_relaxed)) {
        return false;
    }
    if (found.span != nullptr) {
        const auto slot = found.span->slot_at(address);
        if (slot.has_value() && &found.span->record(*slot) == found.record) [[likely]]
            return true;
    } else if (found.block->address == address) [[likely]] {
        return true;
    }
    found.record->state.store(AllocationState::live, std::memory_order_release);
    return false;
}

template <HeapBacking Backing>
Result<void> Heap<Backing>::free(void* block) noexcept {
    return end_life(block, nullptr);
}

template <HeapBacking Backing>
Result<void> Heap<Backing>::free(void* block, std::uint64_t size_bytes) noexcept {
    return end_life(block, &size_bytes);
}

template <HeapBacking Backing>
[[gnu::always_inline]] inline Result<void> Heap<Backing>::end_life(
    void* start, const std::uint64_t* size_bytes) noexcept {
    const auto address = reinterpret_cast<std::uint64_t>(start);
    if (address == 0) return ok();
    if (fork_guard_->in_child()) [[unlikely]]
        return forked();
    const Found found = find_surely(address);
    if (found.record == nullptr || !claim(found, address)) [[unlikely]] {
        return misuse(address, size_bytes);
    }
    AllocationRecord& record = *found.record;
    if (size_bytes != nullptr && record.size_bytes != *size_bytes) [[unlikely]] {
        record.state.store(AllocationState::live, std::memory_order_release);
        return misuse(address, size_bytes);
    }
    const std::uint64_t block_bytes = found.block_bytes();
    HeapThread* thread = caches_->find();
    if (thread == nullptr) [[unlikely]]
        thread = caches_->enter();
    const CachedBlock block{address, &record};
    if (thread == nullptr || record.used_elsewhere.load(std::memory_order_relaxed) ||
        !caches(block_bytes)) [[unlikely]] {
        end_life_slowly(block, block_bytes, thread);
        return ok();
    }
    ThreadCache& cache = *thread->cache;
    const CacheKey key(block_bytes, record.stream);
    cache.lock.lock();
    count_death(block, block_bytes, cache);
    if (cache.push(key, block)) [[likely]] {
        cache.lock.unlock();
        return ok();
    }
    const std::vector<CachedBlock> others = cache.take_bin(key);
    const bool kept = cache.push(key, block);
    cache.lock.unlock();
    const std::lock_guard lock(mutex_);
    for (const CachedBlock& other : others) accept(other);
    if (!kept) accept(block);
    return ok();
}

template <HeapBacking Backing>
void Heap<Backing>::end_life_slowly(CachedBlock block, std::uint64_t block_bytes,
                                    HeapThread* thread) noexcept {
    if (thread != nullptr) {
        thread->cache->lock.lock();
        count_death(block, block_bytes, *thread->cache);
        thread->cache->lock.unlock();
    }
    const std::lock_guard lock(mutex_);
    if (thread == nullptr) count_death(block, block_bytes, uncached_);
    if (block.record->used_elsewhere.load(std::memory_order_relaxed)) {
        wait_elsewhere(block);
    } else {
        accept(block);
    }
}

template <HeapBacking Backing>
[[gnu::always_inline]] inline void Heap<Backing>::count_death(CachedBlock block,
                                                              std::uint64_t block_bytes,
                                                              ThreadCache& cache) noexcept {
    if (noting_) [[unlikely]]
        note_death(block, cache);
    CacheCounts& counts = cache.counts;
    counts.live_bytes -= static_cast<std::int64_t>(block.record->size_bytes);
    counts.live_block_bytes -= static_cast<std::int64_t>(block_bytes);
    --counts.live_blocks;
    note_peak(counts);
}

}  // namespace frostline
