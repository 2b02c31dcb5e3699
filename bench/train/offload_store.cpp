// Handles are counted, because a tensor of the manager has no address of its own.
#include "bench/train/offload_store.h"

#include <utility>

namespace frostline::train {
namespace {

DeviceAddress address_of(const PinnedTensor& pin) {
    return reinterpret_cast<DeviceAddress>(pin.bytes().data());
}

}  // namespace

Result<std::unique_ptr<OffloadStore>> OffloadStore::open(Gpu& gpu, ManagerOptions options) {
    if (!options.device_bytes) {
        return Error(Errc::invalid_argument, 0,
                     "no device budget was given: add for example --tier device=64MiB");
    }
    const int device = gpu.context()->device();
    if (options.gpu.value_or(device) != device) {
        return Error(Errc::invalid_argument, 0,
                     "--tier gpu={} is not where this trains, on GPU {}: leave it out, or give the "
                     "same to --device",
                     *options.gpu, device);
    }
    options.gpu = device;
    FROSTLINE_TRY(Manager manager, Manager::open(options));
    return std::unique_ptr<OffloadStore>(new OffloadStore(gpu, std::move(manager)));
}

Result<ActivationStore::Allocated> OffloadStore::allocate(std::uint64_t size_bytes) {
    Tensor tensor;
    DeviceAddress address = 0;
    if (size_bytes < kSmallestMovedBytes) {
        FROSTLINE_TRY(const Allocated allocated, small_.allocate(size_bytes));
        tensor.plain = allocated.handle;
        address = allocated.address;
    } else {
        FROSTLINE_TRY(AllocatedTensor allocated, manager_.allocate(size_bytes));
        tensor.id = allocated.id;
        tensor.moves = true;
        tensor.pin = std::move(allocated.pin);
        address = address_of(tensor.pin);
    }
    tensors_.emplace(++last_, std::move(tensor));
    return Allocated{last_, address};
}

Result<void> OffloadStore::done(Handle handle) {
    Tensor& tensor = tensors_.at(handle);
    tensor.pin.release_after(gpu_.stream());
    return ok();
}

Result<DeviceAddress> OffloadStore::use(Handle handle, Access access) {
    Tensor& tensor = tensors_.at(handle);
    if (!tensor.moves) return small_.use(tensor.plain, access);
    FROSTLINE_TRY(tensor.pin,
                  manager_.pin(tensor.id, access == Access::write ? frostline::Access::write
                                                                  : frostline::Access::read));
    return address_of(tensor.pin);
}

void OffloadStore::prefetch(Handle handle) noexcept {
    const Tensor& tensor = tensors_.at(handle);
    if (tensor.moves) (void)manager_.prefetch(tensor.id);
}

void OffloadStore::drop(Handle handle) noexcept {
    const auto found = tensors_.find(handle);
    Tensor& tensor = found->second;
    if (tensor.moves) {
        tensor.pin.release_after(gpu_.stream());
        (void)manager_.drop(tensor.id);
    } else {
        small_.drop(tensor.plain);
    }
    tensors_.erase(found);
}

std::uint64_t OffloadStore::peak_device_bytes() const noexcept {
    return small_.peak_device_bytes() + manager_.stats().tiers[0].peak_bytes;
}

}  // namespace frostline::train
