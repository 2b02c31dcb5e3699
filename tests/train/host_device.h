// A device without a driver: kernels are called directly, on host memory, when they are launched.
#pragma once

#include "bench/train/device.h"

#include <cstdint>
#include <string>
#include <unordered_map>

namespace frostline::train {

/// Memory is filled with NaN when it is allocated, so that reading what nobody wrote shows in the
/// result. Each allocation is one of the C library's, so that AddressSanitizer sees its ends.
class HostDevice final : public Device {
   public:
    HostDevice();
    HostDevice(const HostDevice&) = delete;
    HostDevice& operator=(const HostDevice&) = delete;
    ~HostDevice() override;

    Result<DeviceAddress> allocate(std::uint64_t size_bytes) override;
    void release(DeviceAddress address) noexcept override;
    Result<void> launch(const char* kernel, const LaunchShape& shape,
                        std::span<const std::byte> arguments) override;
    Result<void> upload(DeviceAddress to, std::span<const std::byte> from) override;
    Result<void> download(std::span<std::byte> to, DeviceAddress from) override;
    Result<void> clear(DeviceAddress address, std::uint64_t size_bytes) override;

    std::uint64_t held_bytes() const { return held_bytes_; }
    int launches() const { return launches_; }
    /// The launch that follows this many more fails.
    void fail_after(int launches) { launches_left_ = launches; }
    /// More than this many bytes are refused.
    void set_capacity(std::uint64_t size_bytes) { capacity_bytes_ = size_bytes; }

   private:
    void* module_;
    std::unordered_map<DeviceAddress, std::uint64_t> sizes_;
    std::uint64_t held_bytes_ = 0;
    std::uint64_t capacity_bytes_ = ~std::uint64_t{0};
    int launches_ = 0;
    int launches_left_ = -1;
};

}  // namespace frostline::train
