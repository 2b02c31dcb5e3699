// Frostline's memory for std::pmr.
#pragma once

#include "frostline/device_memory.h"
#include "frostline/host_memory.h"
#include "frostline/standard_calls.h"

#include <cstddef>
#include <memory_resource>

namespace frostline {

/// Over a heap, which is closed only when all blocks were given back; the object that owns it may
/// be moved meanwhile, or go: then the last block closes the heap, and there is no more.
/// Thread-safe. Equal to another of the same heap and stream. Each block spans a multiple of 512
/// bytes: many small ones want a pool of std::pmr on top.
///
/// Over device memory it is for code that asks a memory resource for blocks and never touches them
/// from the host: not for containers, nor for the pools of std::pmr, which write into what they
/// get.
class memory_resource : public std::pmr::memory_resource {
   public:
    explicit memory_resource(const HostMemory& memory) noexcept : heap_(memory.get()) {}
    /// For work on `stream`, as DeviceMemory::allocate() has it.
    memory_resource(const DeviceMemory& memory, void* stream) noexcept
        : heap_(memory.get()), stream_(stream) {}

   private:
    void* do_allocate(std::size_t size_bytes, std::size_t alignment_bytes) override {
        return allocate_or_throw(heap_, size_bytes, alignment_bytes, stream_);
    }
    void do_deallocate(void* block, std::size_t size_bytes, std::size_t) override {
        free_or_report(heap_, block, size_bytes);
    }
    bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
        const auto* const same = dynamic_cast<const memory_resource*>(&other);
        return same != nullptr && same->heap_ == heap_ && same->stream_ == stream_;
    }

    frostline_heap* heap_;
    void* stream_ = nullptr;
};

}  // namespace frostline
