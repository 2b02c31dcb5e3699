// Requests that no free block fits, served from scattered free memory: a window of addresses under
// which its pieces appear in a row.
// Part of heap.h, for those who instantiate Heap. The heap's lock is held.
#pragma once

#include "allocator/heap/heap.h"

#include <new>

namespace frostline {

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

}  // namespace frostline
