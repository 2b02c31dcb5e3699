// Starting the emulated driver.
#include "bench/heaps_machine.h"

#include "bench/emulated_driver.h"
#include "bench/media.h"

#include <fmt/core.h>

#include <stdexcept>

namespace frostline::bench {

HeapMachine::HeapMachine(std::uint64_t memory_bytes)
    : driver_(emulated_driver(fmt::format("memory={}MiB", memory_bytes / kMib))),
      context_(expect(CudaContext::create(driver_, 0))),
      memory_bytes_(memory_bytes) {}

std::unique_ptr<DeviceHeap> HeapMachine::heap(std::uint64_t chunk_bytes) const {
    return expect(make_device_heap(
        {.context = context_, .capacity_bytes = memory_bytes_, .chunk_bytes = chunk_bytes}));
}

void* take(DeviceHeap& heap, std::uint64_t size_bytes) {
    const Result<void*> block = heap.allocate(size_bytes);
    if (!block) [[unlikely]] {
        throw std::runtime_error(block.error().message());
    }
    return *block;
}

void give(DeviceHeap& heap, void* block) {
    const Result<void> freed = heap.free(block);
    if (!freed) [[unlikely]] {
        throw std::runtime_error(freed.error().message());
    }
}

}  // namespace frostline::bench
