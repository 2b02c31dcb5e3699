// The store without Frostline: every tensor stays in device memory, at one address, all its life.
#pragma once

#include "bench/train/activation_store.h"

#include <unordered_map>
#include <vector>

namespace frostline::train {

/// Keeps the memory of dropped tensors for new ones of exactly the same size: a training step asks
/// for the same sizes each time, so that after the first step nothing is allocated. All work is on
/// one stream, which makes reuse at once safe. The device must outlive it.
class PlainStore final : public ActivationStore {
   public:
    explicit PlainStore(Device& device) : device_(device) {}
    PlainStore(const PlainStore&) = delete;
    PlainStore& operator=(const PlainStore&) = delete;
    ~PlainStore() override;

    Result<Allocated> allocate(std::uint64_t size_bytes) override;
    Result<void> done(Handle) override { return ok(); }
    Result<DeviceAddress> use(Handle handle, Access) override { return handle; }
    void prefetch(Handle) noexcept override {}
    void drop(Handle handle) noexcept override;
    std::uint64_t peak_device_bytes() const noexcept override { return held_bytes_; }
    /// Bytes of the tensors of less than `size_bytes` each, with what is kept for new ones.
    std::uint64_t bytes_below(std::uint64_t size_bytes) const noexcept;

   private:
    Device& device_;
    std::unordered_map<DeviceAddress, std::uint64_t> sizes_;  // of all memory held
    std::unordered_map<std::uint64_t, std::vector<DeviceAddress>> free_by_size_;
    std::uint64_t held_bytes_ = 0;
};

}  // namespace frostline::train
