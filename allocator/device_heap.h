// The allocator of GPU memory: a heap over memory that is mapped chunk by chunk, reused by stream.
#pragma once

#include "allocator/heap/device_backing.h"
#include "allocator/heap/heap.h"
#include "allocator/heap/heap_options.h"
#include "tiers/cuda_context.h"
#include "tiers/result.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace frostline {

extern template class Heap<DeviceBacking>;

/// StreamHandle is a CUstream, of its GPU or of a peer. Streams outlive the heap that they were
/// given to, which asks how far they have come, or are forgotten first. Memory that is freed during
/// a capture is reused like any other: whoever replays a graph keeps what it uses.
using DeviceHeap = Heap<DeviceBacking>;

struct DeviceHeapOptions {
    std::shared_ptr<const CudaContext> context;
    std::uint64_t capacity_bytes = 0;  ///< 0: what the device has free
    /// The driver's granularity (2 MiB on what there is) times a power of two.
    std::uint64_t chunk_bytes = std::uint64_t{2} << 20;
    std::vector<int> peers{};  ///< GPUs, as CUDA counts them, that use the memory as well
    HeapOptions heap{};
};

/// No memory is taken yet. Errors: as DeviceBacking::create() and Heap::create().
Result<std::unique_ptr<DeviceHeap>> make_device_heap(const DeviceHeapOptions& options) noexcept;

}  // namespace frostline
