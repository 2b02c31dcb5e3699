// All names of heaps: few, and never freed. The list of them needs no lock, because it only grows.
#include "bindings/c/heap_names.h"

#include "bindings/c/heap_calls.h"

#include <cstdio>
#include <cstdlib>
#include <new>

namespace frostline {
namespace {

std::atomic<frostline_heap*> all_names{nullptr};

void tell_leaks_of(frostline_heap& name) {
    const HeapCall call(name);  // other threads may still free its last block
    if (name.state.load(std::memory_order_acquire) == frostline_heap::State::closed) return;
    name.heap->with([](auto& heap) {
        const std::vector<HeapAllocation> living = heap.live();
        if (living.empty()) return;
        std::fputs(leak_report(heap.options().name, living).c_str(), stderr);
    });
}

// The heaps stay: what is destroyed later may still use their blocks.
void tell_leaks() {
    for (auto* name = all_names.load(std::memory_order_acquire); name != nullptr;
         name = name->next) {
        // A forked child has a copy of the parent's blocks, which are not its own to free.
        if (!name->tells_leaks || name->process.is_child()) continue;
        try {
            tell_leaks_of(*name);
        } catch (const std::bad_alloc&) {
            std::fputs("frostline: no memory for a report of leaks\n", stderr);
        }
    }
}

}  // namespace

void keep(frostline_heap* name) noexcept {
    // Where it cannot be registered, programs that leak are not told.
    [[maybe_unused]] static const int registered = std::atexit(tell_leaks);
    name->next = all_names.load(std::memory_order_relaxed);
    while (!all_names.compare_exchange_weak(name->next, name, std::memory_order_release,
                                            std::memory_order_relaxed)) {
    }
}

}  // namespace frostline
