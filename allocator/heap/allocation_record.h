// What is known of one allocation, whether it is a slot of a span or a block of its own. The state
// word decides who may touch the rest: whoever moves it out of `live` owns the record until it is
// live again, so that a second free of the same address finds another state and changes nothing.
#pragma once

#include "allocator/heap/stream_tag.h"

#include <atomic>
#include <cstdint>

namespace frostline {

enum class AllocationState : std::uint8_t {
    vacant,   ///< free memory of the heap's, or a slot that a thread got with its span
    live,     ///< handed out
    cached,   ///< freed, and kept by a thread for the next request of this size
    pending,  ///< freed, while streams other than its own may still use it
};

/// 24 bytes for each allocation. Lies in a RecordArena, whose memory starts as zeros.
struct AllocationRecord {
    /// The order of birth among the heap's allocations in the low 40 bits, and the heap's clock
    /// then (see HeapClock) in the others.
    std::uint64_t birth;
    std::atomic<AllocationState> state;
    /// Streams other than its own used it: the heap's ledger knows which. Set while live only.
    std::atomic<bool> used_elsewhere;
    StreamTag stream;
    /// Counts the allocations that this record has stood for; survives the record's reuse.
    std::uint32_t generation;
    std::uint64_t size_bytes;  ///< as asked for
};
static_assert(sizeof(AllocationRecord) == 24);

}  // namespace frostline
