// What a training process asks of its allocator, in order. A stream refers to blocks by small
// numbers in the order of their births, so that a replay needs no table but a vector.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace frostline::bench {

struct AllocationEvent {
    std::uint32_t block = 0;
    std::uint64_t size_bytes = 0;  ///< 0: the block is freed
};

struct AllocationStream {
    std::string name;
    std::vector<AllocationEvent> events;
    std::uint32_t blocks = 0;
    std::uint64_t peak_live_bytes = 0;
};

/// A stream as it was recorded (`frostline-allocs 1`), or of three steps of a trace
/// (`frostline-trace 1`), weights first. Throws std::runtime_error, naming the file and the line.
AllocationStream load_allocations(const std::string& path);
AllocationStream load_trace(const std::string& path);

/// Twelve steps of a transformer whose sequences have another length in each, always the same: what
/// is replayed where no recorded streams are.
AllocationStream generate_allocations();

/// `times` repetitions, one after the other; what a repetition leaves alive dies at its end.
AllocationStream repeat(const AllocationStream& stream, unsigned times);

}  // namespace frostline::bench
