// How memory comes back to a heap: from blocks, caches and windows, and from the heap to its
// backing.
// Part of heap.h, for those who instantiate Heap. The heap's lock is held, but for trim(), which
// takes it.
#pragma once

#include "allocator/heap/heap.h"

#include <algorithm>
#include <new>
#include <utility>

namespace frostline {

template <HeapBacking Backing>
Result<std::uint64_t> Heap<Backing>::trim(bool wait) noexcept {
    if (fork_guard_->in_child()) return forked();
    std::unique_lock lock(mutex_);
    poll_pending();
    drain_caches();
    // Twice, because what others are done with is its own stream's then, whose work may be queued.
    if (wait && wait_for_streams(lock)) wait_for_streams(lock);
    settle_others(kNoStream);
    const std::uint64_t chunks = give_up_idle(UINT64_MAX, false, nullptr, true);
    std::uint64_t size_bytes = chunks * large_->chunk_bytes();
    if constexpr (KeepsSpares<Backing>) size_bytes = backing_->release_spare();
    if (not_taken_.has_value()) return *std::exchange(not_taken_, std::nullopt);
    return size_bytes;
}

// The block is nobody's: not live, and in no cache.
template <HeapBacking Backing>
void Heap<Backing>::accept(CachedBlock block) noexcept {
    const StreamTag tag = block.record->stream;
    block.record->state.store(AllocationState::vacant, std::memory_order_relaxed);
    const Found found = find(block.address);
    if (found.span != nullptr) {
        HeapBlock* const empty = spans_->give(*found.span, *found.span->slot_at(block.address));
        if (empty == nullptr) return;
        ledger_.note_freed(tag);
        small_->give(*empty, tag, ledger_.epoch(tag));
        return;
    }
    index_.erase(block.address);
    take_back(*found.block, tag);
}

// The block is in the index no longer.
template <HeapBacking Backing>
void Heap<Backing>::take_back(HeapBlock& block, StreamTag tag) noexcept {
    const std::uint64_t epoch = ledger_.epoch(tag);
    ledger_.note_freed(tag);
    if (block.kind != HeapBlock::Kind::window) {
        (block.address < addresses_.small() ? large_ : small_)->give(block, tag, epoch);
        return;
    }
    // Its pieces serve other blocks of the stream at once; its addresses stay mapped until the
    // stream's work is done.
    const std::uint64_t chunk_bytes = large_->chunk_bytes();
    Retired window = mappings_of(block, chunk_bytes);
    for (const HeapBlock* piece = block.chain; piece != nullptr; piece = piece->chain) {
        shown_.push_back({piece->address / chunk_bytes * chunk_bytes, window.address});
    }
    take_back_pieces(block, tag);
    window.tag = tag;
    window.epoch = epoch;
    open_windows_.erase(window.address);
    large_->drop_window(block);
    retired_.push_back(window);  // open_window() made room
}

template <HeapBacking Backing>
void Heap<Backing>::take_back_pieces(const HeapBlock& window, StreamTag tag) noexcept {
    ledger_.note_freed(tag);
    for (HeapBlock* piece = window.chain; piece != nullptr;) {
        HeapBlock* const next = piece->chain;
        large_->give(*piece, tag, ledger_.epoch(tag));
        piece = next;
    }
}

// Whole chunks, where a window may begin and end within one.
template <HeapBacking Backing>
typename Heap<Backing>::Retired Heap<Backing>::mappings_of(const HeapBlock& window,
                                                           std::uint64_t chunk_bytes) noexcept {
    const std::uint64_t start = window.address / chunk_bytes * chunk_bytes;
    return {start, (window.end() - start + chunk_bytes - 1) / chunk_bytes};
}

template <HeapBacking Backing>
bool Heap<Backing>::drain_caches() noexcept {
    bool changed = false;
    caches_->for_each_locked([&](ThreadCache& cache) {
        for (;;) {
            const std::vector<CachedBlock> blocks = cache.take_next();
            if (blocks.empty()) break;
            for (const CachedBlock& block : blocks) accept(block);
            changed = true;
        }
    });
    return changed;
}

template <HeapBacking Backing>
void Heap<Backing>::close_retired() noexcept {
    const std::uint64_t chunk_bytes = large_->chunk_bytes();
    std::erase_if(retired_, [&](const Retired& window) {
        if (window.tag != kNoStream && ledger_.settled(window.tag) < window.epoch) return false;
        // Addresses that could not be unmapped are not used again, nor those that there is no
        // memory to note.
        if (backing_->unmap_window(window.address, window.chunks)) {
            try {
                windows_->give(window.address - addresses_.windows(), window.chunks * chunk_bytes);
            } catch (const std::bad_alloc&) {
            }
        }
        window_bytes_ -= window.chunks * chunk_bytes;
        std::erase_if(shown_, [&](const Shown& shown) { return shown.window == window.address; });
        return true;
    });
}

// What the backing has taken back is no longer this heap's part of a shared budget.
template <HeapBacking Backing>
void Heap<Backing>::refund(std::uint64_t size_bytes) noexcept {
    if (options_.budget != nullptr) options_.budget->give(size_bytes);
}

// Returns chunks that are free for all to the backing, at most so many, and says how many. Those
// that a window may still show stay, and unless it is asked again those that it did not take.
template <HeapBacking Backing>
std::uint64_t Heap<Backing>::give_up_idle(std::uint64_t at_most, bool small_only,
                                          const HeapBlock* beside, bool ask_again) noexcept {
    if (options_.keeps_memory) return 0;
    close_retired();
    std::uint64_t given_up = 0;
    try {
        std::set<std::uint64_t> kept;
        if (!ask_again) kept = refused_chunks_;
        for (const Shown& shown : shown_) kept.insert(shown.chunk);
        for (HeapSpace* const space : {small_.get(), large_.get()}) {
            if (small_only && space == large_.get()) break;
            std::uint64_t at_once = UINT64_MAX;
            while (given_up < at_most) {
                const auto idle = space->largest_idle(
                    kNoStream, std::min(at_once, at_most - given_up), beside, kept);
                if (!idle.has_value()) break;
                const Result<void> taken = give_up(*space, *idle);
                if (taken) {
                    given_up += idle->chunks;
                } else if (taken.error().code() != Errc::busy) {
                    not_taken_ = taken.error();
                    return given_up;
                } else if (idle->chunks > 1 && !keeps_runs()) {
                    at_once = 1;  // some of them may go
                } else {
                    note_refusal(*idle, taken.error(), kept);
                }
            }
        }
    } catch (const std::bad_alloc&) {
        // What there is no memory to note is not offered now.
    }
    return given_up;
}

// What the backing may still use stays withdrawn: mapped, and not used again.
template <HeapBacking Backing>
Result<void> Heap<Backing>::give_up(HeapSpace& space, const HeapSpace::Idle& idle) noexcept {
    HeapBlock* const withdrawn = space.withdraw(idle);
    if (withdrawn == nullptr) return out_of_records();
    const std::uint64_t end = idle.address + idle.chunks * space.chunk_bytes();
    const Result<void> taken = backing_->unback(idle.address, idle.chunks);
    if (taken) {
        space.unback(*withdrawn);
        refund(end - idle.address);
        refused_chunks_.erase(refused_chunks_.lower_bound(idle.address),
                              refused_chunks_.lower_bound(end));
    } else if (taken.error().code() == Errc::busy) {
        space.give(*withdrawn, kNoStream, 0);
    }
    return taken;
}

template <HeapBacking Backing>
void Heap<Backing>::note_refusal(const HeapSpace::Idle& idle, const Error& error,
                                 std::set<std::uint64_t>& kept) {
    for (std::uint64_t i = 0; i < idle.chunks; ++i) {
        const std::uint64_t chunk = idle.address + i * large_->chunk_bytes();
        kept.insert(chunk);
        if (refused_chunks_.insert(chunk).second) not_taken_ = error;
    }
}

}  // namespace frostline
