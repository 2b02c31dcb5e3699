// The only file that compiles the heap's code for host memory.
#include "allocator/host_heap.h"

#include "allocator/heap/heap_life.h"

namespace frostline {

template class Heap<HostBacking>;

Result<std::unique_ptr<HostHeap>> make_host_heap(const HostHeapOptions& options) noexcept {
    FROSTLINE_TRY(auto backing, HostBacking::create({.capacity_bytes = options.capacity_bytes,
                                                     .chunk_bytes = options.chunk_bytes,
                                                     .numa_node = options.numa_node,
                                                     .pin = options.pin}));
    return HostHeap::create(std::move(backing), options.heap);
}

}  // namespace frostline
