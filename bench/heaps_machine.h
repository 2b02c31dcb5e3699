// The emulated GPU that the heaps' suite runs on, as large as a measurement needs: its memory has
// no pages until somebody writes to it, and nobody does.
#pragma once

#include "allocator/device_heap.h"
#include "tiers/cuda_context.h"
#include "tiers/cuda_driver.h"

#include <cstdint>
#include <memory>

namespace frostline::bench {

inline constexpr std::uint64_t kMib = std::uint64_t{1} << 20;
inline constexpr std::uint64_t kChunkBytes = 2 * kMib;

/// One at a time in the program; it outlives its heaps.
class HeapMachine {
   public:
    /// Starts the emulated driver anew. Throws std::runtime_error.
    explicit HeapMachine(std::uint64_t memory_bytes);

    std::unique_ptr<DeviceHeap> heap(std::uint64_t chunk_bytes = kChunkBytes) const;
    const CudaDriver& driver() const { return driver_; }

   private:
    CudaDriver driver_;
    std::shared_ptr<CudaContext> context_;
    std::uint64_t memory_bytes_;
};

/// Of `heap`, on the default stream. Throws std::runtime_error when they fail.
void* take(DeviceHeap& heap, std::uint64_t size_bytes);
void give(DeviceHeap& heap, void* block);

}  // namespace frostline::bench
