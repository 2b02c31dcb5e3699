// The owner's two ways to end a heap, and the last block's.
#include "bindings/c/heap_end.h"

#include "bindings/c/call_status.h"
#include "bindings/c/heap_calls.h"

#include "frostline/heap.h"

#include <atomic>
#include <memory>
#include <utility>

namespace frostline {
namespace {

using State = frostline_heap::State;

// The heap is destroyed by the caller, when others may call again and are refused: it waits for
// streams, and what a stream runs may call the heap.
std::unique_ptr<OpenHeap> take_out(frostline_heap& name) noexcept {
    name.state.store(State::closed, std::memory_order_release);
    return std::move(name.heap);
}

Result<void> owned(const frostline_heap& name) noexcept {
    const State state = name.state.load(std::memory_order_acquire);
    if (state == State::open) return ok();
    return Error(Errc::closed, 0, "the heap was {}: nothing is left to be done for it",
                 state == State::closed ? "closed already"
                                        : "given up already, and its last block will close it");
}

// Closes a heap in which nothing lives. Otherwise it is left, or the refusal says what lives.
Result<void> end_by_owner(frostline_heap& name, bool leave) {
    // In a forked child the heap is the parent's, and its locks may be held.
    if (name.process.is_child()) {
        FROSTLINE_TRY_VOID(owned(name));
        name.state.store(State::closed, std::memory_order_release);
        return ok();
    }
    std::unique_ptr<OpenHeap> ended;
    const HeapAlone alone(name);
    FROSTLINE_TRY_VOID(owned(name));
    const HeapStatistics now = name.heap->with([](auto& open) { return open.statistics(); });
    if (now.live_blocks == 0) {
        ended = take_out(name);
        return ok();
    }
    if (leave) {
        name.left_blocks.store(now.live_blocks, std::memory_order_relaxed);
        name.state.store(State::left, std::memory_order_release);
        return ok();
    }
    return name.heap->with([&](auto& open) -> Result<void> {
        return Error(Errc::busy, 0,
                     "{}: {} blocks live, of {} bytes together: free them before closing",
                     open.options().name, now.live_blocks, now.live);
    });
}

frostline_status end(frostline_heap* heap, bool leave) noexcept {
    return status_of(
        [&]() -> Result<void> { return heap == nullptr ? ok() : end_by_owner(*heap, leave); });
}

}  // namespace

void end_if_empty(frostline_heap& name) noexcept {
    std::unique_ptr<OpenHeap> ended;
    const HeapAlone alone(name);
    if (name.state.load(std::memory_order_relaxed) == State::left &&
        name.left_blocks.load(std::memory_order_relaxed) == 0) {
        ended = take_out(name);
    }
}

}  // namespace frostline

frostline_status frostline_heap_close(frostline_heap* heap) {
    return frostline::end(heap, false);
}

frostline_status frostline_heap_release(frostline_heap* heap) {
    return frostline::end(heap, true);
}
