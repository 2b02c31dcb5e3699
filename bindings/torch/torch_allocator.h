// All GPUs that PyTorch has asked for memory. Each is made at its first request and lasts: PyTorch
// frees tensors from any thread, with whatever device current, until the process ends. Whose memory
// an address is, the address says, and never the caller's state.
#pragma once

#include "bindings/torch/torch_device.h"
#include "bindings/torch/torch_settings.h"
#include "tiers/cuda_driver.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace frostline {

/// Thread-safe. Its end is its devices'.
class TorchAllocator {
   public:
    /// As many as PyTorch can name, and more than there are in a machine.
    static constexpr int kMostDevices = 128;

    /// With the driver that CudaDriver::library_from_environment() names, loaded when it is needed.
    TorchAllocator() = default;
    TorchAllocator(const TorchAllocator&) = delete;
    TorchAllocator& operator=(const TorchAllocator&) = delete;
    ~TorchAllocator();

    /// Errors: those of with_torch_texts(); busy (a device is in use).
    Result<void> configure(const char* budget, const char* chunk) noexcept;
    /// Loads the driver, if it is not. Errors: not_found, unsupported.
    Result<void> start() noexcept;

    /// Null for no bytes. Errors: invalid_argument (negative, no such device), those of
    /// CudaDriver::load(), TorchDevice::create() and allocate().
    Result<void*> allocate(std::int64_t size_bytes, int device, CUstream stream) noexcept;
    /// What is no device's goes to the driver's cuMemFree, with the named device's context current.
    /// Errors: those of TorchDevice::free(), the driver's.
    Result<void> free(void* block, std::uint64_t size_bytes, int device) noexcept;

    /// The device that is in use and owns the address, or null.
    TorchDevice* owner(const void* address) const noexcept;
    /// The device if it is in use, or null. Errors: invalid_argument.
    Result<TorchDevice*> used(int device) const noexcept;
    /// Made if need be. Errors: as allocate().
    Result<TorchDevice*> device(int device) noexcept;
    /// Of all devices in use.
    void trim() noexcept;
    std::uint64_t foreign_frees() const noexcept {
        return foreign_frees_.load(std::memory_order_relaxed);
    }

   private:
    Result<TorchDevice*> make(int device) noexcept;
    Result<void> load_driver();
    Result<void> free_foreign(void* block, int device) noexcept;

    std::array<std::atomic<TorchDevice*>, kMostDevices> devices_{};  // set once, under the lock
    std::atomic<std::uint64_t> foreign_frees_{0};

    std::mutex mutex_;  // guards everything below
    std::optional<CudaDriver> driver_;
    std::optional<TorchSettings> settings_;
    std::array<std::unique_ptr<TorchDevice>, kMostDevices> owned_;
};

}  // namespace frostline
