// A device is looked up without a lock, and made under one.
#include "bindings/torch/torch_allocator.h"

#include <new>

namespace frostline {

TorchAllocator::~TorchAllocator() = default;

Result<void> TorchAllocator::configure(const char* budget, const char* chunk) noexcept {
    const std::lock_guard lock(mutex_);
    for (const auto& device : owned_) {
        if (device == nullptr) continue;
        return Error(Errc::busy, 0,
                     "PyTorch uses a GPU's memory already: set budget and chunk before that");
    }
    TorchSettings before;
    if (settings_) {
        before = *settings_;
    } else {
        FROSTLINE_TRY(before, torch_settings_from_environment());
    }
    FROSTLINE_TRY(settings_, with_torch_texts(before, budget, chunk));
    return ok();
}

Result<void> TorchAllocator::start() noexcept {
    const std::lock_guard lock(mutex_);
    return load_driver();
}

Result<void> TorchAllocator::load_driver() {
    if (driver_) return ok();
    try {
        FROSTLINE_TRY(driver_, CudaDriver::load());
    } catch (const std::bad_alloc&) {
        return Error(Errc::out_of_memory, 0, "loading the CUDA driver");
    }
    return ok();
}

Result<TorchDevice*> TorchAllocator::used(int device) const noexcept {
    if (device < 0 || device >= kMostDevices) {
        return Error(Errc::invalid_argument, 0, "there is no GPU {}: the first is 0", device);
    }
    return devices_[static_cast<std::size_t>(device)].load(std::memory_order_acquire);
}

Result<TorchDevice*> TorchAllocator::device(int device) noexcept {
    FROSTLINE_TRY(TorchDevice* const found, used(device));
    return found != nullptr ? found : make(device);
}

Result<TorchDevice*> TorchAllocator::make(int device) noexcept {
    const auto place = static_cast<std::size_t>(device);
    const std::lock_guard lock(mutex_);
    if (owned_[place] == nullptr) {
        FROSTLINE_TRY_VOID(load_driver());
        if (!settings_) {
            FROSTLINE_TRY(settings_, torch_settings_from_environment());
        }
        FROSTLINE_TRY(owned_[place], TorchDevice::create(*driver_, device, *settings_));
        devices_[place].store(owned_[place].get(), std::memory_order_release);
    }
    return owned_[place].get();
}

Result<void*> TorchAllocator::allocate(std::int64_t size_bytes, int device,
                                       CUstream stream) noexcept {
    if (size_bytes == 0) return nullptr;
    if (size_bytes < 0) {
        return Error(Errc::invalid_argument, 0, "{} bytes of GPU {} cannot be had", size_bytes,
                     device);
    }
    FROSTLINE_TRY(TorchDevice* const found, this->device(device));
    return found->allocate(static_cast<std::uint64_t>(size_bytes), stream);
}

TorchDevice* TorchAllocator::owner(const void* address) const noexcept {
    for (const auto& each : devices_) {
        TorchDevice* const device = each.load(std::memory_order_acquire);
        if (device != nullptr && device->owns(address)) return device;
    }
    return nullptr;
}

Result<void> TorchAllocator::free(void* block, std::uint64_t size_bytes, int device) noexcept {
    if (block == nullptr) return ok();
    // The named device is nearly always the one.
    if (const auto named = used(device); named && *named != nullptr && (*named)->owns(block)) {
        return (*named)->free(block, size_bytes);
    }
    TorchDevice* const found = owner(block);
    return found != nullptr ? found->free(block, size_bytes) : free_foreign(block, device);
}

Result<void> TorchAllocator::free_foreign(void* block, int device) noexcept {
    foreign_frees_.fetch_add(1, std::memory_order_relaxed);
    FROSTLINE_TRY_VOID(start());
    FROSTLINE_TRY(const auto context, CudaContext::create(*driver_, device));
    return context->run([&] {
        const CudaDriver& driver = context->driver();
        return driver.check("cuMemFree", driver.cuMemFree(reinterpret_cast<CUdeviceptr>(block)));
    });
}

void TorchAllocator::trim() noexcept {
    for (const auto& each : devices_) {
        if (TorchDevice* const device = each.load(std::memory_order_acquire)) device->trim();
    }
}

}  // namespace frostline
