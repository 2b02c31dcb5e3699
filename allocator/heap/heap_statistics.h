// What a heap can say of itself.
#pragma once

#include "allocator/tensor_id.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace frostline {

/// Bytes unless it says otherwise. live_block + cached + free + pending = mapped, but for what is
/// too small to be a block in spans of small ones.
struct HeapStatistics {
    std::uint64_t live = 0;        ///< handed out, as asked for
    std::uint64_t live_block = 0;  ///< handed out, as the blocks span
    std::uint64_t live_blocks = 0;
    std::uint64_t peak_live = 0;  ///< exact for one thread, and else to 1/1024 of capacity each
    std::uint64_t cached = 0;     ///< kept by threads, or by the backing for its next chunk
    std::uint64_t free = 0;       ///< free and mapped
    std::uint64_t lost = 0;       ///< of that, what streams took along that were found destroyed
    std::uint64_t pending = 0;    ///< freed, and other streams are not known to be done
    std::uint64_t mapped = 0;     ///< memory that the backing took from its medium
    std::uint64_t peak_mapped = 0;
    std::uint64_t reserved = 0;  ///< addresses
    std::uint64_t windows = 0;   ///< addresses at which mapped memory appears a second time
    std::uint64_t pinned = 0;    ///< memory that is page-locked
    std::uint64_t metadata = 0;  ///< the heap's own records, outside all that
    std::uint64_t births = 0;    ///< allocations so far
    std::uint64_t misuses = 0;   ///< calls that were refused as misuse
};

/// A living allocation.
struct HeapAllocation {
    std::uint64_t address = 0;
    std::uint64_t size_bytes = 0;
    TensorId id;
    std::uint64_t birth = 0;  ///< its number among the heap's allocations, from 1
    double age_s = 0;
    std::string place;  ///< where it was allocated, if the heap's options say `debug`
};

/// A line for each allocation, up to a thousand: its number, id, size, age and place; and the sum
/// of all. May throw std::bad_alloc.
std::string leak_report(std::string_view heap, std::span<const HeapAllocation> living);

}  // namespace frostline
