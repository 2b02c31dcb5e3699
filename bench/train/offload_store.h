// The store that moves tensors through Frostline's tiers while they are not in use.
#pragma once

#include "bench/train/activation_store.h"
#include "bench/train/gpu.h"
#include "bench/train/plain_store.h"
#include "bindings/manager.h"

#include <memory>
#include <unordered_map>

namespace frostline::train {

/// A store on Frostline's manager with a device tier, for tensors of one GPU and its stream; the
/// GPU outlives it. Tensors of less than kSmallestMovedBytes stay where they are.
class OffloadStore final : public ActivationStore {
   public:
    /// Whole chunks of device memory are moved; for less it would not pay.
    static constexpr std::uint64_t kSmallestMovedBytes = std::uint64_t{256} << 10;

    /// `options` names the budgets; the device tier is of the GPU's device. Errors: those of
    /// Manager::open(); invalid_argument without a device budget.
    static Result<std::unique_ptr<OffloadStore>> open(Gpu& gpu, ManagerOptions options);

    Result<Allocated> allocate(std::uint64_t size_bytes) override;
    Result<void> done(Handle handle) override;
    Result<DeviceAddress> use(Handle handle, Access access) override;
    void prefetch(Handle handle) noexcept override;
    void drop(Handle handle) noexcept override;
    std::uint64_t peak_device_bytes() const noexcept override;

    /// Marks the end of a training step.
    Result<void> end_step() { return manager_.step(); }
    const Manager& manager() const noexcept { return manager_; }

   private:
    struct Tensor {
        TensorId id;  ///< if it is the manager's
        bool moves = false;
        Handle plain = 0;  ///< if it is the plain store's
        PinnedTensor pin;  ///< while it is in use
    };

    OffloadStore(Gpu& gpu, Manager manager)
        : gpu_(gpu), small_(gpu), manager_(std::move(manager)) {}

    Gpu& gpu_;
    PlainStore small_;
    Manager manager_;
    std::unordered_map<Handle, Tensor> tensors_;
    Handle last_ = 0;
};

}  // namespace frostline::train
