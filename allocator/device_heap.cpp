// The only file that compiles the heap's code for GPU memory.
#include "allocator/device_heap.h"

#include "allocator/heap/heap_life.h"

#include <new>

namespace frostline {

template class Heap<DeviceBacking>;

Result<std::unique_ptr<DeviceHeap>> make_device_heap(const DeviceHeapOptions& options) noexcept
    try {
    FROSTLINE_TRY(auto backing, DeviceBacking::create({.context = options.context,
                                                       .capacity_bytes = options.capacity_bytes,
                                                       .chunk_bytes = options.chunk_bytes,
                                                       .peers = options.peers}));
    return DeviceHeap::create(std::move(backing), options.heap);
} catch (const std::bad_alloc&) {
    return Error(Errc::out_of_memory, 0, "making {}", options.heap.name);
}

}  // namespace frostline
