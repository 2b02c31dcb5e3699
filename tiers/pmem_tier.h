// Persistent memory, or a file in its place. Bytes are durable when fence() has returned:
// pmem_drain on real persistent memory, pmem_msync on a file.
#pragma once

#include "tiers/free_extents.h"
#include "tiers/pmem_file.h"
#include "tiers/tier.h"
#include "tiers/tier_meter.h"

#include <memory>
#include <mutex>
#include <string>

namespace frostline {

/// The pmem tier. Thread-safe.
class PmemTier final : public Tier {
   public:
    struct Options {
        TierId id{};
        std::string path;
        std::uint64_t size_bytes = 0;  ///< as in PmemFile::Options
        const SystemCalls* calls = &SystemCalls::real();
    };

    /// Errors: those of PmemFile::open.
    static Result<std::unique_ptr<PmemTier>> create(const Options& options) noexcept;

    /// Removes the file now if create() made it: what is stored stays readable.
    void remove_created_file() noexcept;

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
    void calibrated(const TierSpeed& speed) noexcept override {
        info_.speed = speed;
        meter_.restart_peak();
    }

   private:
    PmemTier(const Options& options, PmemFile file);
    void leave_process(std::byte* address, std::uint64_t size_bytes) const noexcept;

    const SystemCalls* calls_;
    PmemFile file_;
    TierInfo info_;
    TierMeter meter_;
    std::mutex mutex_;  // guards free_, and whether the file is still to be removed
    FreeExtents free_;
};

}  // namespace frostline
