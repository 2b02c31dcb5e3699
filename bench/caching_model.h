// What PyTorch's caching allocator would reserve for a stream of allocations, by its default rules
// and on one stream, written from their description: sizes round up to 512 bytes; up to 1 MiB comes
// from segments of 2 MiB, below 10 MiB from segments of 20 MiB, and all else from a segment of its
// own, rounded to 2 MiB; the free block that fits best is split where the rest is of use, and
// neighbours in a segment coalesce. Nothing is returned.
#pragma once

#include "bench/allocation_stream.h"

#include <cstdint>

namespace frostline::bench {

/// The most bytes that the rules reserve at a time.
std::uint64_t caching_model_peak_bytes(const AllocationStream& stream);

}  // namespace frostline::bench
