// Where a heap's memory comes from when no cache has it: free memory first, then what caches,
// streams and retired windows hold, then scattered pieces, and new chunks last.
// Part of heap.h, for those who instantiate Heap. The heap's lock is held.
#pragma once

#include "allocator/heap/heap.h"

#include <algorithm>

namespace frostline {

template <HeapBacking Backing>
bool Heap<Backing>::usable(std::uint64_t alignment_bytes) noexcept {
    // Not std::has_single_bit(), which calls a function where the processor may lack the
    // instruction.
    return alignment_bytes != 0 && (alignment_bytes & (alignment_bytes - 1)) == 0 &&
           alignment_bytes <= kMostAlignment;
}

// A large block that is aligned beyond a slot may not be taken for a slot of its size.
template <HeapBacking Backing>
std::uint64_t Heap<Backing>::block_bytes_for(std::uint64_t size_bytes,
                                             std::uint64_t alignment_bytes) noexcept {
    if (size_bytes <= kLargestSlot && alignment_bytes <= kSlotUnitBytes) {
        return class_bytes(class_of(size_bytes));
    }
    const std::uint64_t size = std::max(size_bytes, kLargestSlot + 1);
    return (size + HeapSpace::kUnitBytes - 1) / HeapSpace::kUnitBytes * HeapSpace::kUnitBytes;
}

// Each step makes memory free that was not, and costs more than the one before it. No record: there
// is none without waiting.
template <HeapBacking Backing>
Result<CachedBlock> Heap<Backing>::supply(const Request& request, ThreadCache* cache) noexcept {
    poll_pending();
    CachedBlock block = take_free(request);
    if (block.record == nullptr) block = take_from_caches(request, cache);
    if (block.record == nullptr && settle_others(request.tag)) block = take_free(request);
    note_supply(request, block.record == nullptr);
    if (block.record == nullptr) block = take_stitched(request);
    if (block.record != nullptr) return block;
    FROSTLINE_TRY(block, take_grown(request));
    // The budget is used up, or the device is. What another stream freed is this one's if it waits
    // for that one.
    if (block.record == nullptr && borrow_from_streams(request.tag)) {
        FROSTLINE_TRY(block, take_again(request));
    }
    if (block.record == nullptr) {
        FROSTLINE_TRY(block, take_elsewhere(request));
    }
    return block;
}

// Growth at one place keeps what lies idle beside it, and a stitched request what it could have
// been stitched from. Where that leaves no room, all of it is given up, and any place will do.
template <HeapBacking Backing>
Result<CachedBlock> Heap<Backing>::take_elsewhere(const Request& request) noexcept {
    if (request.tag != kNoStream) settle(request.tag);
    // Asked even if there was nothing left: what was given up for one place may have made another.
    gave_up_ |= give_up_idle(UINT64_MAX, false, nullptr) > 0;
    FROSTLINE_TRY(const CachedBlock block, take_again(request));
    if (block.record != nullptr) return block;
    // Small and large blocks keep apart while there is room for both.
    HeapSpace& other = request.block_bytes <= kMostSmallBytes ? *large_ : *small_;
    HeapBlock* const guest = take_block_of(other, request);
    return guest == nullptr ? CachedBlock{} : enter(*guest);
}

// Waits, and asks others for room, before it says that there is none.
template <HeapBacking Backing>
Result<CachedBlock> Heap<Backing>::supply_or_wait(const Request& request, ThreadCache* cache,
                                                  std::unique_lock<std::mutex>& lock) noexcept {
    bool again = false;
    for (int tries = 0; tries < kMostTries; ++tries) {
        refused_.reset();
        gave_up_ = false;
        FROSTLINE_TRY(const CachedBlock block, supply(request, cache));
        again |= gave_up_;
        if (block.record != nullptr) {
            if (cache != nullptr) fill_cache(request, block, *cache);
            if (again && options_.budget != nullptr) options_.budget->note_retry();
            return block;
        }
        const Error none = no_room(request);  // of now: both calls below let others in
        if (!wait_for_streams(lock) && !ask_for_room(request, lock)) return none;
        again = true;
    }
    return no_room(request);
}

// Whether blocks are worth caching: see the head of heap.h.
template <HeapBacking Backing>
void Heap<Backing>::note_supply(const Request& request, bool scarce) noexcept {
    if (request.block_bytes <= kLargestSlot) return;
    if (scarce) {
        // More lives than ever did: no place of a block would have helped.
        if (free_bytes_of(request.tag) + free_bytes_of(kNoStream) < request.block_bytes) return;
        if (caches_blocks_.load(std::memory_order_relaxed)) patience_ *= 2;
        calm_ = 0;
        caches_blocks_.store(false, std::memory_order_relaxed);
    } else if (++calm_ == patience_) {
        caches_blocks_.store(true, std::memory_order_relaxed);
    }
}

template <HeapBacking Backing>
CachedBlock Heap<Backing>::take_from_caches(const Request& request, ThreadCache* cache) noexcept {
    CachedBlock block;
    if (request.block_bytes > kLargestSlot) {
        block = take_from_threads(request, cache);
    } else if (cache != nullptr && leaves_slots(*cache)) {
        // Where it cannot grow, what others keep serves; and if they do not, that is told.
        block = take_grown(request).value_or(CachedBlock{});
    }
    if (block.record == nullptr && drain_caches()) block = take_free(request);
    return block;
}

// Whether other threads keep their slots: where they took turns at the same spans, the records of
// both would share cache lines for good. Small memory may grow by half for that.
template <HeapBacking Backing>
bool Heap<Backing>::leaves_slots(ThreadCache& cache) noexcept {
    std::uint64_t own = 0;
    std::uint64_t all = 0;
    caches_->for_each_locked([&](ThreadCache& other) {
        const std::uint64_t bytes = other.slot_bytes();
        all += bytes;
        if (&other == &cache) own += bytes;
    });
    return own == 0 && all > 0 && all <= small_->backed_bytes() / 3;
}

// What another thread freed of this kind, and more of it at once: two threads that each need what
// the other has just freed would otherwise have everything taken apart at every turn.
template <HeapBacking Backing>
CachedBlock Heap<Backing>::take_from_threads(const Request& request, ThreadCache* cache) noexcept {
    const CacheKey key(request.block_bytes, request.tag);
    if (cache == nullptr || request.alignment_bytes > HeapSpace::kUnitBytes || !cache->keeps(key)) {
        return {};
    }
    bool stolen = false;
    caches_->for_each_locked([&](ThreadCache& other) {
        if (!stolen && &other != cache) stolen = cache->steal(key, other);
    });
    if (!stolen) return {};
    cache->lock.lock();
    const CachedBlock block = cache->pop(key);
    cache->lock.unlock();
    return block;
}

// The other slots of the span that served the request go to the thread as well: it needs the heap's
// lock less often, and the records of two threads' slots do not share cache lines.
template <HeapBacking Backing>
void Heap<Backing>::fill_cache(const Request& request, CachedBlock served,
                               ThreadCache& cache) noexcept {
    const CacheKey key(request.block_bytes, request.tag);
    HeapSpan* const span = spans_->span_at(served.address);
    if (span == nullptr || !cache.keeps(key)) return;
    cache.lock.lock();
    spans_->take_rest(*span, [&](const HeapSlot& slot) {
        slot.record->stream = request.tag;
        return cache.push(key, {slot.address, slot.record});
    });
    cache.lock.unlock();
}

template <HeapBacking Backing>
Result<CachedBlock> Heap<Backing>::take_again(const Request& request) noexcept {
    CachedBlock block = take_free(request);
    if (block.record == nullptr) block = take_stitched(request);
    if (block.record != nullptr) return block;
    return take_grown(request);
}

template <HeapBacking Backing>
Result<CachedBlock> Heap<Backing>::take_grown(const Request& request) noexcept {
    FROSTLINE_TRY(const bool grown,
                  grow(request.block_bytes > kLargestSlot ? request : span_for(request)));
    if (!grown) return CachedBlock{};
    const CachedBlock block = take_free(request);
    return block.record != nullptr ? block : take_stitched(request);
}

template <HeapBacking Backing>
CachedBlock Heap<Backing>::take_free(const Request& request) noexcept {
    if (request.block_bytes <= kLargestSlot) return take_slot(request);
    HeapBlock* const block = take_block(request);
    return block == nullptr ? CachedBlock{} : enter(*block);
}

template <HeapBacking Backing>
CachedBlock Heap<Backing>::take_slot(const Request& request) noexcept {
    const std::size_t size_class = class_of(request.block_bytes);
    HeapSlot slot = spans_->take(size_class, request.tag);
    if (slot.record == nullptr) {
        HeapBlock* const block = take_block(span_for(request));
        if (block == nullptr) return {};
        if (!spans_->add(*block, size_class, request.tag)) {
            take_back(*block, request.tag);
            return {};
        }
        slot = spans_->take(size_class, request.tag);
    }
    return {slot.address, slot.record};
}

template <HeapBacking Backing>
typename Heap<Backing>::Request Heap<Backing>::span_for(const Request& request) noexcept {
    return {kSpanBytes, kSpanBytes, kSpanBytes, request.tag};
}

template <HeapBacking Backing>
HeapBlock* Heap<Backing>::take_block(const Request& request) noexcept {
    return take_block_of(space_for(request.block_bytes), request);
}

template <HeapBacking Backing>
HeapBlock* Heap<Backing>::take_block_of(HeapSpace& space, const Request& request) noexcept {
    const auto take = [&] {
        return space.take(request.block_bytes, request.alignment_bytes, request.tag);
    };
    HeapBlock* const block = take();
    if (block != nullptr || request.tag == kNoStream || space.free_bytes(kNoStream) == 0) {
        return block;
    }
    // What is free for all joins what is free for this stream, and may be large enough then. All of
    // it, which is slow where there are many pieces (a millisecond for 10,000) and two streams ask
    // in turn: with only the pieces that touch the stream's own, a heap mapped more (1.11 times
    // what lives where it maps 1.09 now, on recorded steps of a U-Net).
    space.retag(kNoStream, UINT64_MAX, request.tag, 0);
    return take();
}

// The block can be found by its address from now on.
template <HeapBacking Backing>
CachedBlock Heap<Backing>::enter(HeapBlock& block) noexcept {
    if (!index_.reserve()) {
        take_back(block, block.tag);
        return {};
    }
    index_.insert(block.address, records_->number_of(&block) / kNumbersInARecord);
    return {block.address, &block.record};
}

// True: there is more memory, and the request fits somewhere. False: there is no room.
template <HeapBacking Backing>
Result<bool> Heap<Backing>::grow(const Request& request) noexcept {
    HeapSpace& space = space_for(request.block_bytes);
    auto growth = space.plan_growth(request.block_bytes, request.alignment_bytes, request.tag);
    if (!growth.has_value()) return false;
    const std::uint64_t chunks = chunks_to_stitch(request, growth->chunks);
    if (chunks < growth->chunks) {
        growth = space.plan_growth(chunks * space.chunk_bytes(), space.chunk_bytes(), kNoStream);
        if (!growth.has_value()) return false;
    }
    if (!make_allowance(growth->chunks, request, growth->unbacked)) return false;
    FROSTLINE_TRY(const bool backed, back(growth->address, growth->chunks, growth->unbacked));
    if (!backed) return false;
    if (!space.back(*growth, request.tag)) {
        FROSTLINE_TRY_VOID(backing_->unback(growth->address, growth->chunks));
        refund(growth->chunks * large_->chunk_bytes());
        return out_of_records();
    }
    note_mapped();
    return true;
}

// Chunks that lie idle elsewhere are given up first, so that the same memory serves here. Large
// ones are not where the request may be stitched from them.
template <HeapBacking Backing>
bool Heap<Backing>::make_allowance(std::uint64_t chunks, const Request& request,
                                   const HeapBlock* beside) noexcept {
    const bool enough = has_room_for(chunks);
    if (request.tag != kNoStream &&
        (small_->idle_chunks() > 0 || (!may_stitch(request) && large_->idle_chunks() > 0))) {
        settle(request.tag);
    }
    // Where the backing takes less, there is less room, which is seen below.
    const std::uint64_t given_up = give_up_idle(chunks, may_stitch(request), beside);
    gave_up_ |= !enough && given_up > 0;
    return backed_bytes() + chunks * large_->chunk_bytes() <= capacity_bytes_;
}

template <HeapBacking Backing>
bool Heap<Backing>::has_room_for(std::uint64_t chunks) const noexcept {
    const std::uint64_t size_bytes = chunks * large_->chunk_bytes();
    return backed_bytes() + size_bytes <= capacity_bytes_ &&
           (options_.budget == nullptr || options_.budget->has(size_bytes));
}

// Others use the device, too, and it may have less than the budget says: then what lies idle here
// is given up for it, once.
template <HeapBacking Backing>
Result<bool> Heap<Backing>::back(std::uint64_t address, std::uint64_t chunks,
                                 const HeapBlock* beside) noexcept {
    const std::uint64_t size_bytes = chunks * large_->chunk_bytes();
    const auto back_once = [&]() -> Result<void> {
        if (options_.budget != nullptr && !options_.budget->take(size_bytes)) {
            return Error(Errc::no_space, 0, "the budget that {} shares is used up", options_.name);
        }
        auto done = backing_->back(address, chunks);
        if (!done) refund(size_bytes);
        note_mapped();  // a backing may keep what it could not put there
        return done;
    };
    Result<void> backed = back_once();
    const auto no_more = [&] {
        return !backed && (backed.error().code() == Errc::no_space ||
                           backed.error().code() == Errc::out_of_memory);
    };
    if (no_more() && give_up_idle(chunks, false, beside) > 0) {
        gave_up_ = true;
        backed = back_once();
    }
    // What was given up and is not used again here is another heap's to take.
    if constexpr (KeepsSpares<Backing>) {
        if (options_.budget != nullptr) backing_->release_spare();
    }
    if (backed) return true;
    if (!no_more()) return backed.error();
    refused_ = backed.error();
    return false;
}

// Without the lock, because whoever makes room may free blocks of this heap, or wait for somebody
// who is in a call of it. What it asks for itself does not make it ask again.
template <HeapBacking Backing>
bool Heap<Backing>::ask_for_room(const Request& request,
                                 std::unique_lock<std::mutex>& lock) noexcept {
    static thread_local bool asking = false;
    if (options_.pressure == nullptr || asking) return false;
    lock.unlock();
    asking = true;
    const bool made = options_.pressure->make_room(request.block_bytes) > 0;
    asking = false;
    lock.lock();
    return made;
}

}  // namespace frostline
