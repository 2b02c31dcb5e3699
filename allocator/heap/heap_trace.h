// The births and deaths of a heap's allocations, in the order in which they happened, as a stream
// that can be replayed: "frostline-allocs 1", a line `a NUMBER BYTES` for each birth, `f NUMBER`
// for each death, and `step` where a step begins.
//
// Rule: an event is written to the list of the cache whose lock its thread holds, with its place in
// the order of all. Lists are put together when the text is asked for.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace frostline {

struct HeapEvent {
    enum class Kind : std::uint8_t { birth, death, step };
    std::uint64_t place = 0;   ///< in the order of all events of the heap
    std::uint64_t number = 0;  ///< of the allocation
    std::uint64_t size_bytes = 0;
    Kind kind = Kind::step;
};

/// What the lists of all caches share. Thread-safe.
class HeapTrace {
   public:
    /// Longer traces end here: a run that is never cut must not run out of memory.
    static constexpr std::uint64_t kMostEvents = std::uint64_t{1} << 24;

    /// Appends an event to a list of which the caller holds the lock. Never fails: what does not
    /// fit any longer, or finds no memory, is left out, and complete() says so.
    void add(std::vector<HeapEvent>& events, HeapEvent event) noexcept;

    bool complete() const noexcept { return !incomplete_.load(std::memory_order_relaxed); }

    /// The lists' events as text. May throw std::bad_alloc.
    static std::string text(std::span<const std::vector<HeapEvent>> lists);

   private:
    std::atomic<std::uint64_t> next_place_{0};
    std::atomic<bool> incomplete_{false};
};

}  // namespace frostline
