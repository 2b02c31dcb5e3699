// How a heap ends for a program: closed by its owner, or left by it and closed by its last block.
//
// Rule: from the moment in which a heap is left, its blocks are counted where they are handed out
// and come back. Whoever brings the count to none ends the heap, if that still holds once nobody is
// in a call of it.
#pragma once

#include "bindings/c/heap_names.h"

#include <atomic>

namespace frostline {

/// Within a call that handed out a block of the heap.
inline void count_birth(frostline_heap& name) noexcept {
    if (name.state.load(std::memory_order_relaxed) == frostline_heap::State::left) [[unlikely]]
        name.left_blocks.fetch_add(1, std::memory_order_relaxed);
}
/// Within a call that took a block back. True: it may have been the last of a heap that was left;
/// end_if_empty() is to be called after the call.
inline bool count_death(frostline_heap& name) noexcept {
    return name.state.load(std::memory_order_relaxed) == frostline_heap::State::left &&
           name.left_blocks.fetch_sub(1, std::memory_order_relaxed) == 1;
}
/// Ends a heap that was left, if no block of it lives. Not within a call. Waits for the streams
/// that use freed memory.
void end_if_empty(frostline_heap& name) noexcept;

}  // namespace frostline
