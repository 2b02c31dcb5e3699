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
Result<CachedBlock> Heap<Backing>::supply(const Request& request) noexcept {
    poll_pending();
    CachedBlock block = take_free(request);
    if (block.record == nullptr && drain_caches()) block = take_free(request);
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
    give_up_idle(UINT64_MAX, false, nullptr);
    FROSTLINE_TRY(const CachedBlock block, take_again(request));
    if (block.record != nullptr) return block;
    // Small and large blocks keep apart while there is room for both.
    HeapSpace& other = request.block_bytes <= kMostSmallBytes ? *large_ : *small_;
    HeapBlock* const guest = take_block_of(other, request);
    return guest == nullptr ? CachedBlock{} : enter(*guest);
}

// Waits, and asks others for room, before it says that there is none.
template <HeapBacking Backing>
Result<CachedBlock> Heap<Backing>::supply_or_wait(const Request& request,
                                                  std::unique_lock<std::mutex>& lock) noexcept {
    refused_.reset();
    for (int tries = 0; tries < kMostTries; ++tries) {
        FROSTLINE_TRY(const CachedBlock block, supply(request));
        if (block.record != nullptr) return block;
        if (!wait_for_streams(lock) && !ask_for_room(request)) break;
    }
    return no_room(request);
}

// Whether blocks are worth caching: see the head of heap.h.
template <HeapBacking Backing>
void Heap<Backing>::note_supply(const Request& request, bool scarce) noexcept {
    if (scarce) {
        if (caches_blocks_.load(std::memory_order_relaxed)) patience_ *= 2;
        calm_ = 0;
        caches_blocks_.store(false, std::memory_order_relaxed);
    } else if (request.block_bytes > kLargestSlot && ++calm_ == patience_) {
        caches_blocks_.store(true, std::memory_order_relaxed);
    }
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
    // What is free for all joins what is free for this stream, and may be large enough then.
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

template <HeapBacking Backing>
CachedBlock Heap<Backing>::take_stitched(const Request& request) noexcept {
    if constexpr (Backing::kMakesWindows) {
        if (!may_stitch(request)) return {};
        const auto plan = plan_stitch(*large_, request.block_bytes, request.tag);
        if (!plan.has_value()) return {};
        HeapBlock* const window = large_->make_window();
        if (window == nullptr) return {};
        window->size_bytes = request.block_bytes;
        window->tag = request.tag;
        if (lend(*plan, *window) && open_window(*plan, *window)) return enter(*window);
        take_back_pieces(*window, request.tag);
        large_->drop_window(*window);
    }
    return {};
}

template <HeapBacking Backing>
bool Heap<Backing>::may_stitch(const Request& request) const noexcept {
    return Backing::kMakesWindows && !options_.keeps_memory && options_.stitch_from_bytes != 0 &&
           request.block_bytes >= options_.stitch_from_bytes &&
           request.block_bytes > kMostSmallBytes &&
           request.alignment_bytes <= HeapSpace::kUnitBytes;
}

// Lends the plan's pieces to the window, in the order of its addresses. Pieces of one free block
// are cut from its end, because what is left of it keeps its start.
template <HeapBacking Backing>
bool Heap<Backing>::lend(const StitchPlan& plan, HeapBlock& window) noexcept {
    for (std::size_t i = plan.pieces.size(); i > 0; --i) {
        HeapBlock* const lent = large_->lend(plan.pieces[i - 1]);
        if (lent == nullptr) return false;
        lent->chain = window.chain;
        window.chain = lent;
    }
    return true;
}

template <HeapBacking Backing>
bool Heap<Backing>::open_window(const StitchPlan& plan, HeapBlock& window) noexcept {
    const std::uint64_t chunk_bytes = large_->chunk_bytes();
    try {
        std::vector<std::uint64_t> homes;
        for (const HeapSpace::Piece& piece : plan.pieces) {
            homes.push_back(piece.address / chunk_bytes * chunk_bytes);
        }
        const std::uint64_t size_bytes = homes.size() * chunk_bytes;
        const auto place = windows_->find(size_bytes);
        if (!place.has_value()) return false;
        const std::uint64_t address = addresses_.windows() + *place;
        window.address = address + plan.offset_bytes;
        // Room for what happens when the window is freed, which must not fail.
        make_room(retired_, retired_.size() + open_windows_.size() + 1);
        make_room(shown_, window_bytes_ / chunk_bytes + homes.size());
        const auto entry = open_windows_.emplace(address, &window).first;
        windows_->take_at(*place, size_bytes);
        if (backing_->map_window(address, homes)) {
            window_bytes_ += size_bytes;
            return true;
        }
        windows_->give(*place, size_bytes);
        open_windows_.erase(entry);
    } catch (const std::bad_alloc&) {
        open_windows_.erase(window.address - plan.offset_bytes);
    }
    return false;
}

// How many more chunks would do if scattered memory is used as well; `at_most` where that saves
// none.
template <HeapBacking Backing>
std::uint64_t Heap<Backing>::chunks_to_stitch(const Request& request,
                                              std::uint64_t at_most) const noexcept {
    if (!may_stitch(request)) return at_most;
    std::uint64_t low = 1;
    std::uint64_t high = at_most;
    while (low < high) {
        const std::uint64_t middle = low + (high - low) / 2;
        if (plan_stitch(*large_, request.block_bytes, request.tag, middle).has_value()) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
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
    const std::uint64_t chunk_bytes = large_->chunk_bytes();
    if (request.tag != kNoStream &&
        (small_->idle_chunks() > 0 || (!may_stitch(request) && large_->idle_chunks() > 0))) {
        settle(request.tag);
    }
    // Where the backing takes less, there is less room, which is seen below.
    give_up_idle(chunks, may_stitch(request), beside);
    return backed_bytes() + chunks * chunk_bytes <= capacity_bytes_;
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

template <HeapBacking Backing>
bool Heap<Backing>::ask_for_room(const Request& request) noexcept {
    return options_.pressure != nullptr && options_.pressure->make_room(request.block_bytes) > 0;
}

}  // namespace frostline
