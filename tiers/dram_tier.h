// Host memory under a hard budget. At every moment
//     reserved + adopted + cached <= capacity,
// where cached bytes are arena pages that were released and are still resident: they are kept for
// the next reservation, because faulting pages in costs as much as copying them, and given back to
// the system as soon as the budget is needed otherwise.
#pragma once

#include "tiers/buffer_release.h"
#include "tiers/dram_arena.h"
#include "tiers/system_calls.h"
#include "tiers/tier.h"
#include "tiers/tier_meter.h"

#include <memory>
#include <mutex>
#include <unordered_map>

namespace frostline {

/// The DRAM tier. An extent's offset is its address. Thread-safe.
class DramTier final : public Tier {
   public:
    struct Options {
        TierId id{};
        std::uint64_t capacity_bytes = 0;  ///< may be 0: then everything is refused
        const SystemCalls* calls = &SystemCalls::real();
    };

    /// Reserves address space only; memory is used when it is reserved and touched.
    static Result<std::unique_ptr<DramTier>> create(const Options& options) noexcept;
    ~DramTier() override;

    const TierInfo& info() const noexcept override { return info_; }
    TierUsage usage() const noexcept override { return meter_.usage(); }
    Result<Extent> reserve(std::uint64_t size_bytes) noexcept override;
    void release(const Extent& extent) noexcept override;
    Result<void> write(const Extent& extent, std::uint64_t offset,
                       std::span<const std::byte> bytes) noexcept override;
    Result<void> read(const Extent& extent, std::uint64_t offset,
                      std::span<std::byte> bytes) noexcept override;
    using Tier::fence;
    Result<void> fence(std::span<const Extent> extents) noexcept override;
    std::byte* host_address(const Extent& extent) const noexcept override;
    Result<std::unique_ptr<TransferQueue>> open_queue() noexcept override;
    void calibrated(const TierSpeed& speed) noexcept override { info_.speed = speed; }

    /// Takes over a buffer that already lies in host memory, without copying it; it counts against
    /// the budget with its exact size. The caller may not write to it until it is released.
    /// Errors: no_space, and then `release` is not called; invalid_argument (null, empty), busy
    /// (adopted already).
    Result<Extent> adopt(std::span<std::byte> buffer, BufferRelease release) noexcept;

    /// Undoes an adopt(): the buffer is its owner's again, and `release` is not called.
    void cancel_adoption(const Extent& extent) noexcept;

    /// Resident bytes of the arena that no extent uses.
    std::uint64_t cached_bytes() const noexcept;

   private:
    using Range = DramArena::Range;

    DramTier(const Options& options, std::byte* memory, std::uint64_t memory_bytes);
    Result<Extent> reserve_locked(std::uint64_t size_bytes);
    bool fits(std::uint64_t size_bytes) const noexcept;
    Result<void> trim_for(std::uint64_t size_bytes, const Range& keep);

    const SystemCalls* calls_;
    TierInfo info_;
    TierMeter meter_;
    std::byte* memory_;
    std::uint64_t memory_bytes_;

    mutable std::mutex mutex_;  // guards everything below
    DramArena arena_;
    struct Adopted {
        std::uint64_t size_bytes;
        BufferRelease release;
    };
    std::unordered_map<std::uint64_t, Adopted> adopted_;  // by address
};

}  // namespace frostline
