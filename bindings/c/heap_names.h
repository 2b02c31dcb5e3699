// What a program holds of a heap: a name, which stays when the heap is closed, so that a late call
// finds that out and touches nothing.
#pragma once

#include "bindings/fork_watch.h"
#include "bindings/heaps/open_heap.h"

#include <atomic>
#include <memory>

/// `heap` is used by threads that may call it, and ended by the one that closes it, which is alone.
struct frostline_heap {
    std::unique_ptr<frostline::OpenHeap> heap;
    std::atomic<bool> closed{false};
    frostline::ForkWatch process;
    bool tells_leaks = true;
    frostline_heap* next = nullptr;  // among all names
};

namespace frostline {

/// Keeps the name until the process ends; then says on standard error what still lives in its heap,
/// if it is open and wants that told. Thread-safe.
void keep(frostline_heap* name) noexcept;

}  // namespace frostline
