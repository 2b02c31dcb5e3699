// What the trainer needs of a device: memory, copies, and kernels, all in the order of one stream.
// It is an interface, and not the driver itself, so that tests call the same kernels directly.
#pragma once

#include "tiers/result.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace frostline::train {

/// An address in device memory. The host never follows it.
using DeviceAddress = std::uint64_t;

/// The address as kernels' arguments hold it.
template <class T>
T* pointer_to(DeviceAddress address) noexcept {
    return reinterpret_cast<T*>(address);  // NOLINT(performance-no-int-to-ptr)
}

template <class T>
DeviceAddress address_of(const T* pointer) noexcept {
    return reinterpret_cast<DeviceAddress>(pointer);
}

struct Extents {
    unsigned x = 1;
    unsigned y = 1;
    unsigned z = 1;
};
struct LaunchShape {
    Extents grid;
    Extents block;
};

/// One device with one stream. Not thread-safe. Virtual because the program picks the driver, and
/// tests the host, behind a model that is compiled once.
class Device {
   public:
    virtual ~Device() = default;

    /// Memory whose content is undefined, aligned for every kernel. Errors: no_space.
    virtual Result<DeviceAddress> allocate(std::uint64_t size_bytes) = 0;
    /// Waits for what is queued; then gives back what allocate returned.
    virtual void release(DeviceAddress address) noexcept = 0;
    /// Queues a kernel. `arguments` is the one struct that the kernel takes; it is copied.
    virtual Result<void> launch(const char* kernel, const LaunchShape& shape,
                                std::span<const std::byte> arguments) = 0;
    /// Queues a copy to the device; `from` may be reused on return.
    virtual Result<void> upload(DeviceAddress to, std::span<const std::byte> from) = 0;
    /// Waits for everything that is queued, and copies from the device.
    virtual Result<void> download(std::span<std::byte> to, DeviceAddress from) = 0;
    /// Queues zeroing.
    virtual Result<void> clear(DeviceAddress address, std::uint64_t size_bytes) = 0;
};

}  // namespace frostline::train
