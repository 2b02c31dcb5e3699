// What a heap's owner decides.
#pragma once

#include "allocator/heap/heap_budget.h"
#include "tiers/result.h"

#include <cstdint>
#include <functional>
#include <string>

namespace frostline {

/// The engine's side of memory pressure: the allocator declares it, because it may not know who
/// moves tensors. Called by the thread that asks for memory, and by several at once if they do,
/// while no lock of the heap is held: it may free blocks of the heap, and wait for others who use
/// it. What it asks a heap for itself is served from what there is, or refused.
class PressureHandler {
   public:
    virtual ~PressureHandler() = default;
    /// Makes `size_bytes` available to the heap's backing, as far as it can, and says how many it
    /// made.
    virtual std::uint64_t make_room(std::uint64_t size_bytes) noexcept = 0;
};

struct HeapOptions {
    std::string name = "heap";            ///< in messages
    PressureHandler* pressure = nullptr;  ///< outlives the heap; null: nobody to ask
    /// Large requests may be served by windows over scattered memory, where the backing can. From
    /// this size on; 0: never.
    std::uint64_t stitch_from_bytes = std::uint64_t{1} << 18;
    /// That it shares with other heaps, besides what its backing may give; null: none.
    HeapBudget* budget = nullptr;
    /// Memory that was mapped stays mapped, at its addresses, until the heap ends: what was
    /// recorded there (a graph) may run again. Such a heap makes no windows.
    bool keeps_memory = false;
    /// Told of each refused call besides its error; by the thread that made it. Empty: nobody.
    std::function<void(const Error&)> on_misuse;
    /// Misuse, and what lives, are told with the places where blocks were allocated and freed.
    /// Costs microseconds for each call and 150 bytes for each address that was ever used.
    bool debug = false;
    /// Records births and deaths, for Heap::trace(). Costs 10 ns for each, and 32 bytes, up to
    /// HeapTrace::kMostEvents of them.
    bool traced = false;
};

}  // namespace frostline
