// Device memory that lives as long as its owner: weights and the workspace. It never moves.
#pragma once

#include "bench/train/device.h"

#include <vector>

namespace frostline::train {

/// A set of buffers of one device, given back together. The device must outlive it.
class DeviceBuffers {
   public:
    explicit DeviceBuffers(Device& device) : device_(device) {}
    DeviceBuffers(const DeviceBuffers&) = delete;
    DeviceBuffers& operator=(const DeviceBuffers&) = delete;
    ~DeviceBuffers() {
        for (const DeviceAddress address : addresses_) device_.release(address);
    }

    /// Room for `count` elements, undefined. Errors: no_space.
    template <class T>
    Result<T*> allocate(std::uint64_t count) {
        const std::uint64_t size_bytes = count * sizeof(T);
        FROSTLINE_TRY(const DeviceAddress address, device_.allocate(size_bytes));
        addresses_.push_back(address);
        size_bytes_ += size_bytes;
        return pointer_to<T>(address);
    }

    std::uint64_t size_bytes() const noexcept { return size_bytes_; }

   private:
    Device& device_;
    std::vector<DeviceAddress> addresses_;
    std::uint64_t size_bytes_ = 0;
};

}  // namespace frostline::train
