// What a program holds of a heap: a name, which stays when the heap is closed, so that a late call
// finds that out and touches nothing.
#pragma once

#include "allocator/heap/cache_lock.h"
#include "bindings/fork_watch.h"
#include "bindings/heaps/open_heap.h"
#include "frostline/heap.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

/// All but the last two change only while nobody else is in a call of the heap (HeapAlone), if
/// nothing else is said. Whoever is in one (HeapCall) may read them.
struct frostline_heap {
    enum class State : std::uint8_t {
        open,    ///< somebody owns it
        left,    ///< nobody does, and blocks live: the last of them closes it
        closed,  ///< `heap` is gone
    };
    std::unique_ptr<frostline::OpenHeap> heap;
    std::atomic<frostline_heap_pressure_handler> pressure{nullptr};
    std::atomic<State> state{State::open};
    std::atomic<std::uint64_t> left_blocks{0};  ///< that live in a heap that was left; any call

    std::mutex ending;  ///< whoever has the heap alone
    std::atomic<bool> wanted{false};
    std::atomic<std::uint32_t> unnoted_calls{0};  ///< calls that no thread's note tells; any call
    const bool barriers = frostline::has_process_barrier();

    std::atomic<void*> pressure_context{nullptr};  ///< this and `pressure`: any call

    frostline::ForkWatch process;
    bool tells_leaks = true;
    frostline_heap* next = nullptr;  ///< among all names
};

namespace frostline {

/// Keeps the name until the process ends; then says on standard error what still lives in its heap,
/// if it is not closed and wants that told. Thread-safe.
void keep(frostline_heap* name) noexcept;

}  // namespace frostline
