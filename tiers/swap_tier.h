// A swap file: volatile, and it says so. The file is unlinked from the start, so that nothing stays
// behind however the process ends, and every block is allocated before it is used, so that a full
// disk is an error when room is reserved and not when bytes are written.
#pragma once

#include "tiers/file_descriptor.h"
#include "tiers/free_extents.h"
#include "tiers/system_calls.h"
#include "tiers/tier.h"
#include "tiers/tier_meter.h"

#include <memory>
#include <mutex>
#include <string>

namespace frostline {

/// The swap tier. Thread-safe.
class SwapTier final : public Tier {
   public:
    struct Options {
        TierId id{};
        std::string directory;         ///< must exist and be writable
        std::uint64_t size_bytes = 0;  ///< most that may be used; 0: nine tenths of what is free
        /// The file grows by this much, up to size_bytes.
        std::uint64_t growth_bytes = std::uint64_t{256} << 20;
        const SystemCalls* calls = &SystemCalls::real();
    };

    /// Errors: not_found (no such directory, or not one), permission, no_space (not even the first
    /// page fits).
    static Result<std::unique_ptr<SwapTier>> create(const Options& options) noexcept;

    const TierInfo& info() const noexcept override { return info_; }
    TierUsage usage() const noexcept override { return meter_.usage(); }
    /// When the file system is full the file stops growing; what it has is used further.
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

   private:
    SwapTier(const Options& options, FileDescriptor file, std::uint64_t capacity_bytes);
    Result<Extent> reserve_locked(std::uint64_t size_bytes);
    Result<void> grow(std::uint64_t needed_bytes);

    const SystemCalls* calls_;
    FileDescriptor file_;
    TierInfo info_;
    std::uint64_t growth_bytes_;
    TierMeter meter_;
    std::mutex mutex_;  // guards free_
    FreeExtents free_;
};

}  // namespace frostline
