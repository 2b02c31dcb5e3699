// The allocator of host memory: a heap over memory that the system gives chunk by chunk,
// page-locked for a GPU if wanted.
#pragma once

#include "allocator/heap/heap.h"
#include "allocator/heap/heap_options.h"
#include "allocator/heap/host_backing.h"
#include "tiers/cuda_context.h"
#include "tiers/result.h"
#include "tiers/topology.h"

#include <cstdint>
#include <memory>

namespace frostline {

extern template class Heap<HostBacking>;

/// Knows no streams: a block is freed when nothing uses it any more, a copy of a GPU included.
using HostHeap = Heap<HostBacking>;

struct HostHeapOptions {
    /// 0: all memory of the machine, or what the process's control groups leave of it.
    std::uint64_t capacity_bytes = 0;
    /// A power of two of at least 64 KiB (2 MiB with `pin`).
    std::uint64_t chunk_bytes = std::uint64_t{2} << 20;
    /// Where memory lies as long as there is room; kNoNode: near whoever touches it first.
    int numa_node = kNoNode;
    /// Page-lock memory with this GPU's driver while the heap has it; null: do not. One copy of a
    /// GPU reaches any block.
    std::shared_ptr<const CudaContext> pin{};
    HeapOptions heap{};
};

/// No memory is taken yet. Errors: as HostBacking::create() and Heap::create().
Result<std::unique_ptr<HostHeap>> make_host_heap(const HostHeapOptions& options) noexcept;

}  // namespace frostline
