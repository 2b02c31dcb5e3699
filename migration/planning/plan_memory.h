// Where the bytes of every tensor lie while a plan is carried out. No tier holds more than its
// size: whoever takes room asks for it before.
#pragma once

#include "migration/planning/machine.h"
#include "migration/planning/schedule.h"
#include "migration/planning/tensor_uses.h"
#include "migration/planning/trace.h"
#include "migration/planning/transfer_plan.h"
#include "tiers/range_set.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace frostline {

/// The first part of `window` that is not in `set`.
std::optional<Range> first_missing(const RangeSet& set, const Range& window) noexcept;
/// The bytes of a tensor's range.
Range range_of(const TensorRange& range) noexcept;

/// Not thread-safe; what it is given outlives it. Any call that changes it may throw
/// std::bad_alloc.
class PlanMemory {
   public:
    /// Weights live and are whole on the device; nothing else lives.
    PlanMemory(const Trace& trace, const Machine& machine, std::span<const Route> routes);

    bool is_alive(TensorIndex tensor) const noexcept { return tensors_[tensor].is_alive; }
    /// What the device lacks of a living tensor; what arrives there counts as lacking until it has.
    const RangeSet& absent(TensorIndex tensor) const noexcept { return tensors_[tensor].absent; }
    const RangeSet& below(TensorIndex tensor, std::size_t route) const noexcept {
        return below_[tensor * routes_.size() + route];
    }
    /// Less than nothing if more is held than fits.
    std::int64_t free_bytes(TierIndex tier) const noexcept {
        return static_cast<std::int64_t>(machine_->tiers[tier].size_bytes) - used_[tier];
    }

    void bear(TensorIndex tensor);
    void end(TensorIndex tensor);
    /// What lies below is worth nothing; its room is free from the next instant on, because at one
    /// instant copies start before kernels do.
    void write(TensorIndex tensor);
    /// Time has gone on.
    void free_void_copies() noexcept;

    void take_room(TierIndex tier, std::uint64_t bytes) noexcept;
    /// Arrives where room was taken before.
    void arrive_on_device(const TensorRange& range);
    void arrive_below(const TensorRange& range, std::size_t route);
    /// All of the range is there.
    void drop_from_device(const TensorRange& range);
    void drop_below(const TensorRange& range, std::size_t route);
    /// A copy that is there from the start.
    void place_below(const TensorRange& range, std::size_t route);

   private:
    struct Tensor {
        bool is_alive = false;
        RangeSet absent;
    };
    RangeSet& copies(TensorIndex tensor, std::size_t route) noexcept {
        return below_[tensor * routes_.size() + route];
    }
    std::int64_t take_copies(TensorIndex tensor, std::size_t route) noexcept;

    const Trace* trace_;
    const Machine* machine_;
    std::span<const Route> routes_;
    std::vector<Tensor> tensors_;
    std::vector<RangeSet> below_;  // by tensor and route
    std::vector<std::int64_t> used_;
    std::vector<std::int64_t> void_bytes_;  // by route: used, and free at the next instant
};

}  // namespace frostline
