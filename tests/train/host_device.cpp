// What the module exports is described in tiers/emulator/kernel_module.h.
#include "tests/train/host_device.h"

#include "tiers/emulator/kernel_module.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>

namespace frostline::train {

HostDevice::HostDevice() : module_(dlopen(FROSTLINE_TRAIN_MODULE, RTLD_NOW | RTLD_LOCAL)) {}

HostDevice::~HostDevice() {
    for (const auto& [address, size_bytes] : sizes_) std::free(pointer_to<void>(address));
    if (module_ != nullptr) dlclose(module_);
}

Result<DeviceAddress> HostDevice::allocate(std::uint64_t size_bytes) {
    if (held_bytes_ + size_bytes > capacity_bytes_) return Error(Errc::no_space, 0, "full");
    void* memory = std::malloc(size_bytes);
    if (memory == nullptr) return Error(Errc::no_space, 0, "no memory");
    // All bits set is a NaN as a float, and an index out of every range as an integer.
    std::memset(memory, 0xFF, size_bytes);
    const DeviceAddress address = address_of(static_cast<std::byte*>(memory));
    sizes_.emplace(address, size_bytes);
    held_bytes_ += size_bytes;
    return address;
}

void HostDevice::release(DeviceAddress address) noexcept {
    const auto found = sizes_.find(address);
    held_bytes_ -= found->second;
    sizes_.erase(found);
    std::free(pointer_to<void>(address));
}

Result<void> HostDevice::launch(const char* kernel, const LaunchShape& shape,
                                std::span<const std::byte> arguments) {
    if (module_ == nullptr)
        return Error(Errc::not_found, 0, "no module {}", FROSTLINE_TRAIN_MODULE);
    if (launches_left_ == 0) return Error(Errc::io, 0, "launch of {} failed, as asked", kernel);
    if (launches_left_ > 0) --launches_left_;
    const std::string symbol = std::string("frostline_kernel_") + kernel;
    const auto* found = static_cast<const FrostlineEmulatedKernel*>(dlsym(module_, symbol.c_str()));
    if (found == nullptr) return Error(Errc::not_found, 0, "no kernel {}", kernel);
    if (found->parameters_bytes != arguments.size()) {
        return Error(Errc::invalid_argument, 0, "{} takes {} bytes, not {}", kernel,
                     found->parameters_bytes, arguments.size());
    }
    ++launches_;
    found->run(
        {{shape.grid.x, shape.grid.y, shape.grid.z}, {shape.block.x, shape.block.y, shape.block.z}},
        arguments.data());
    return ok();
}

Result<void> HostDevice::upload(DeviceAddress to, std::span<const std::byte> from) {
    std::memcpy(pointer_to<std::byte>(to), from.data(), from.size());
    return ok();
}

Result<void> HostDevice::download(std::span<std::byte> to, DeviceAddress from) {
    std::memcpy(to.data(), pointer_to<const std::byte>(from), to.size());
    return ok();
}

Result<void> HostDevice::clear(DeviceAddress address, std::uint64_t size_bytes) {
    std::memset(pointer_to<std::byte>(address), 0, size_bytes);
    return ok();
}

}  // namespace frostline::train
