// A store that moves every tensor at every chance: what is not in use is on the host only, and each
// use is at a fresh address that is poisoned and gone afterwards. A model that keeps an address too
// long, or writes where it said that it would read, cannot come to the right result with it.
#pragma once

#include "bench/train/activation_store.h"
#include "tests/train/host_device.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <vector>

namespace frostline::train {

class MovingStore final : public ActivationStore {
   public:
    explicit MovingStore(HostDevice& device) : device_(device) {}
    MovingStore(const MovingStore&) = delete;
    MovingStore& operator=(const MovingStore&) = delete;
    ~MovingStore() override { EXPECT_EQ(tensors_.size(), 0U) << "tensors were never dropped"; }

    Result<Allocated> allocate(std::uint64_t size_bytes) override {
        Tensor tensor{.on_host = std::vector<std::byte>(size_bytes), .access = Access::write};
        FROSTLINE_TRY(tensor.address, device_.allocate(size_bytes));
        held_bytes_ += size_bytes;
        peak_bytes_ = std::max(peak_bytes_, held_bytes_);
        allocated.push_back(next_);
        tensors_.emplace(next_, std::move(tensor));
        return Allocated{next_, tensors_.at(next_++).address};
    }
    Result<void> done(Handle handle) override {
        Tensor& tensor = in_use(handle, true);
        if (tensor.access == Access::write) {
            FROSTLINE_TRY_VOID(device_.download(tensor.on_host, tensor.address));
        }
        leave(tensor);
        return ok();
    }
    Result<DeviceAddress> use(Handle handle, Access access) override {
        Tensor& tensor = in_use(handle, false);
        FROSTLINE_TRY(tensor.address, device_.allocate(tensor.on_host.size()));
        held_bytes_ += tensor.on_host.size();
        peak_bytes_ = std::max(peak_bytes_, held_bytes_);
        tensor.access = access;
        FROSTLINE_TRY_VOID(device_.upload(tensor.address, tensor.on_host));
        used.push_back(handle);
        return tensor.address;
    }
    void prefetch(Handle handle) noexcept override {
        EXPECT_EQ(tensors_.count(handle), 1U) << "a hint of a tensor that is not there";
        hinted.push_back(handle);
    }
    void drop(Handle handle) noexcept override {
        Tensor& tensor = tensors_.at(handle);
        if (tensor.address != 0) leave(tensor);
        tensors_.erase(handle);
    }
    std::uint64_t peak_device_bytes() const noexcept override { return peak_bytes_; }

    // What was called, in order.
    std::vector<Handle> allocated;
    std::vector<Handle> used;
    std::vector<Handle> hinted;

   private:
    struct Tensor {
        std::vector<std::byte> on_host;
        DeviceAddress address = 0;  // 0: not in use
        Access access = Access::read;
    };

    Tensor& in_use(Handle handle, bool expected) {
        Tensor& tensor = tensors_.at(handle);
        EXPECT_EQ(tensor.address != 0, expected) << "use and done do not alternate";
        return tensor;
    }
    void leave(Tensor& tensor) {
        std::memset(pointer_to<void>(tensor.address), 0xFF, tensor.on_host.size());
        device_.release(tensor.address);
        held_bytes_ -= tensor.on_host.size();
        tensor.address = 0;
    }

    HostDevice& device_;
    std::map<Handle, Tensor> tensors_;
    Handle next_ = 1;
    std::uint64_t held_bytes_ = 0;
    std::uint64_t peak_bytes_ = 0;
};

}  // namespace frostline::train
