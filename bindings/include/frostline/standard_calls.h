// Allocating and freeing as the standard library wants it: failure is std::bad_alloc, and taking
// back cannot fail. A block that the heap refuses to take is reported and left alone.
#pragma once

#include "frostline/heap.h"

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <new>

namespace frostline {

/// A child of a fork that goes on using its parent's containers sees std::bad_alloc, which has no
/// words, and looks for lack of memory. So the first in a process is told on standard error.
inline void tell_forked_child(frostline_status status) noexcept {
    static std::atomic<bool> told{false};
    if (status != FROSTLINE_BUSY || told.exchange(true)) return;
    std::fprintf(stderr, "frostline: %s\n", frostline_last_error());
}

/// Never null. Throws std::bad_alloc; frostline_last_error() says why.
inline void* allocate_or_throw(frostline_heap* heap, std::size_t size_bytes,
                               std::size_t alignment_bytes, void* stream) {
    void* block = nullptr;
    // The standard wants an address for no bytes, too.
    const std::size_t some_bytes = size_bytes == 0 ? 1 : size_bytes;
    const frostline_status status =
        frostline_heap_alloc(heap, some_bytes, alignment_bytes, stream, &block);
    if (status == FROSTLINE_OK) return block;
    tell_forked_child(status);
    throw std::bad_alloc();
}

/// Takes back what allocate_or_throw() gave for `size_bytes`. What is refused is a fault of the
/// program, for which there is no other way to be told: one line on standard error.
inline void free_or_report(frostline_heap* heap, void* block, std::size_t size_bytes) noexcept {
    const std::size_t some_bytes = size_bytes == 0 ? 1 : size_bytes;
    const frostline_status status = frostline_heap_free_sized(heap, block, some_bytes);
    // A forked child's copies of containers go with the child, and are nobody's fault.
    if (status != FROSTLINE_OK && status != FROSTLINE_BUSY) {
        std::fprintf(stderr, "frostline: not freed: %s\n", frostline_last_error());
    }
}

}  // namespace frostline
