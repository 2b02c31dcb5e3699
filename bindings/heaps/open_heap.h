// A heap as a program opened it, of either kind, and what it stands on: the driver outlives the
// context, and both outlive the heap.
#pragma once

#include "allocator/device_heap.h"
#include "allocator/host_heap.h"
#include "bindings/heaps/heap_settings.h"
#include "tiers/cuda_driver.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace frostline {

/// Thread-safe, as the heap in it.
class OpenHeap {
   public:
    /// Loads the driver where one is needed. Errors: invalid_argument (options that do not belong
    /// together), and with the heap's name CudaDriver::load()'s, CudaContext::create()'s, the
    /// heap's.
    static Result<std::unique_ptr<OpenHeap>> open(const HeapSettings& settings);

    /// Calls with the heap, a DeviceHeap& or a HostHeap&, and returns what the call does.
    template <class Call>
    auto with(Call&& call) {
        return device_ != nullptr ? std::forward<Call>(call)(*device_)
                                  : std::forward<Call>(call)(*host_);
    }

   private:
    OpenHeap() = default;
    Result<void> open_device(const HeapSettings& settings, const HeapOptions& heap);
    Result<void> open_host(const HeapSettings& settings, const HeapOptions& heap);
    Result<std::shared_ptr<const CudaContext>> context(int gpu);

    std::optional<CudaDriver> driver_;
    std::unique_ptr<DeviceHeap> device_;  // one of these two
    std::unique_ptr<HostHeap> host_;
};

}  // namespace frostline
