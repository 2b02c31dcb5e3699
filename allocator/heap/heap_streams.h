// What a heap does with streams: it marks where their work ended, learns how far they have come,
// and hands on what they are done with. Nothing here waits while the heap's lock is held, because
// what a stream runs may call the heap.
// Part of heap.h, for those who instantiate Heap. The heap's lock is held, but for record_stream()
// and forget_stream(), which take it.
#pragma once

#include "allocator/heap/heap.h"

#include <new>

namespace frostline {

// A stream that was destroyed is noticed here; its handle may be another stream's by now, so that
// no thread may go by its note of it.
template <HeapBacking Backing>
Result<void> Heap<Backing>::mark(StreamTag tag) noexcept {
    const bool was_lost = ledger_.is_lost(tag);
    const Result<void> marked = ledger_.mark(tag);
    if (!was_lost && ledger_.is_lost(tag)) caches_->renew_notes();
    return marked;
}

template <HeapBacking Backing>
Result<void> Heap<Backing>::record_stream(void* block, StreamHandle stream) noexcept {
    if (block == nullptr || !Backing::kHasStreams) return ok();
    FROSTLINE_TRY(const Found found, find_living(block));
    std::unique_lock lock(mutex_);
    FROSTLINE_TRY(const StreamTag tag, admit(stream));
    // What another thread has freed meanwhile may wait for its streams, whose list stays as it is.
    if (found.record->state.load(std::memory_order_acquire) != AllocationState::live) {
        lock.unlock();
        return misuse(reinterpret_cast<std::uint64_t>(block), nullptr);
    }
    if (tag == found.record->stream) return ok();
    try {
        uses_.note(*found.record, tag);
    } catch (const std::bad_alloc&) {
        return Error(Errc::out_of_memory, 0, "noting that a stream uses a block of {}",
                     options_.name);
    }
    found.record->used_elsewhere.store(true, std::memory_order_relaxed);
    return ok();
}

template <HeapBacking Backing>
Result<void> Heap<Backing>::forget_stream(StreamHandle stream) noexcept {
    if (!Backing::kHasStreams) return ok();
    if (fork_guard_->in_child()) return forked();
    std::unique_lock lock(mutex_);
    if (const StreamTag tag = ledger_.find(stream); tag != kNoStream) {
        const Result<void> forgotten = ledger_.forget(tag);
        if (!forgotten && !ledger_.is_lost(tag)) return forgotten;
        caches_->renew_notes();
    }
    return end_lost(stream, lock);
}

// Nothing tells how far a destroyed stream has come but that the whole device is done.
template <HeapBacking Backing>
Result<void> Heap<Backing>::end_lost(StreamHandle stream,
                                     std::unique_lock<std::mutex>& lock) noexcept {
    for (;;) {
        const StreamTag tag = ledger_.find_lost(stream);
        if (tag == kNoStream) return ok();
        if (ledger_.any_captured()) {
            return Error(
                Errc::busy, 0,
                "{}: stream {:#x} was destroyed, and its device cannot be waited for while "
                "another stream is being captured: end the capture first",
                options_.name, stream);
        }
        const std::uint64_t epoch = ledger_.epoch(tag);
        lock.unlock();
        const Result<void> waited = backing_->wait_for_all();
        lock.lock();
        if (!waited) return waited;
        // Unless somebody else did meanwhile, and its tag is another stream's.
        if (ledger_.is_lost(tag) && ledger_.epoch(tag) == epoch) ledger_.end(tag);
    }
}

// An event now, and not when the memory is wanted: what is queued from now on does not use it.
template <HeapBacking Backing>
void Heap<Backing>::wait_elsewhere(CachedBlock block) noexcept {
    block.record->state.store(AllocationState::pending, std::memory_order_relaxed);
    block.record->used_elsewhere.store(false, std::memory_order_relaxed);
    const bool waits = uses_.wait(block, [&](StreamTag tag) -> std::optional<std::uint64_t> {
        const std::uint64_t epoch = ledger_.epoch(tag);
        if (!mark(tag)) return std::nullopt;
        return ledger_.settled(tag) < epoch ? epoch : 0;  // not if it was forgotten, and is done
    });
    if (waits) {
        pending_bytes_ += find(block.address).block_bytes();
    } else {
        accept(block);
    }
}

// Each stream is asked once, however many blocks wait for it; one in trouble settles nothing.
template <HeapBacking Backing>
void Heap<Backing>::poll_pending() noexcept {
    for (std::size_t i = 1; uses_.waiting() > 0 && i <= ledger_.count(); ++i) {
        const auto tag = static_cast<StreamTag>(i);
        if (!uses_.wait_for(tag)) continue;
        const std::uint64_t epoch = ledger_.epoch(tag);
        if (uses_.unmarked(tag) && mark(tag)) uses_.marked(tag, epoch);
        (void)ledger_.poll(tag);
        uses_.settle(tag, ledger_.settled(tag), [&](CachedBlock block) {
            pending_bytes_ -= find(block.address).block_bytes();
            accept(block);
        });
    }
}

// Ends the stream's epoch if memory was freed in it. False: it takes no event now.
template <HeapBacking Backing>
bool Heap<Backing>::mark_freed(StreamTag tag) noexcept {
    const bool freed = ledger_.freed(tag) && (free_bytes_of(tag) > 0 || !retired_.empty());
    return !freed || mark(tag).has_value();
}

// What the stream freed, as far as it has come, is free for all. True: there was any.
template <HeapBacking Backing>
bool Heap<Backing>::settle(StreamTag tag) noexcept {
    mark_freed(tag);
    if (!ledger_.poll(tag)) return false;  // a stream in trouble keeps its memory
    const std::uint64_t settled = ledger_.settled(tag);
    const bool large = large_->retag(tag, settled, kNoStream, 0);
    const bool small = small_->retag(tag, settled, kNoStream, 0);
    return large || small;
}

template <HeapBacking Backing>
bool Heap<Backing>::settle_others(StreamTag tag) noexcept {
    bool changed = false;
    for (std::size_t i = 1; i <= ledger_.count(); ++i) {
        if (i != tag) changed |= settle(static_cast<StreamTag>(i));
    }
    // Its own memory is the stream's at once, but not the addresses of its windows.
    if (tag != kNoStream && !retired_.empty() && mark_freed(tag)) (void)ledger_.poll(tag);
    close_retired();
    return changed;
}

// What other streams freed is this one's, which waits for them on the device.
template <HeapBacking Backing>
bool Heap<Backing>::borrow_from_streams(StreamTag tag) noexcept {
    bool changed = false;
    for (std::size_t i = 1; i <= ledger_.count(); ++i) {
        const auto other = static_cast<StreamTag>(i);
        if (other == tag || !mark_freed(other)) continue;
        const std::uint64_t last = ledger_.ended(other);
        if (!ledger_.may_mark(tag) || !ledger_.order(tag, other, last)) continue;
        ledger_.note_freed(tag);
        changed |= large_->retag(other, last, tag, ledger_.epoch(tag));
        changed |= small_->retag(other, last, tag, ledger_.epoch(tag));
    }
    return changed;
}

// What freed memory waits for: an event of each stream that has any, once one is marked behind it.
template <HeapBacking Backing>
std::vector<typename Heap<Backing>::EventRef> Heap<Backing>::events_ahead() {
    std::vector<EventRef> events;
    for (std::size_t i = 1; i <= ledger_.count(); ++i) {
        const auto tag = static_cast<StreamTag>(i);
        mark_freed(tag);
        if (auto event = ledger_.last_mark(tag); event != nullptr)
            events.push_back(std::move(event));
    }
    return events;
}

// Waits for it without the lock, because what a stream runs may call the heap. True: there was
// something to wait for, and its memory is free now.
template <HeapBacking Backing>
bool Heap<Backing>::wait_for_streams(std::unique_lock<std::mutex>& lock) noexcept {
    try {
        const std::vector<EventRef> events = events_ahead();
        lock.unlock();
        bool waited = false;
        for (const EventRef& event : events) waited |= backing_->wait(*event).has_value();
        lock.lock();
        poll_pending();
        settle_others(kNoStream);
        return waited;
    } catch (const std::bad_alloc&) {
        return false;
    }
}

}  // namespace frostline
