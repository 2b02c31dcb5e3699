// Swap files: volatile, and they say so. Blocks are allocated before they are used, so that a full
// disk is an error when room is reserved and not when bytes are written, and given back with the
// extents that are released after the room has not been needed for a while.
#pragma once

#include "tiers/clock.h"
#include "tiers/swap_files.h"
#include "tiers/swap_queue.h"
#include "tiers/swap_room.h"
#include "tiers/system_calls.h"
#include "tiers/tier.h"
#include "tiers/tier_meter.h"

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace frostline {

/// The swap tier. Thread-safe. Every transfer goes through io_uring and past the page cache, where
/// the system allows that; info() says so if not.
class SwapTier final : public Tier {
   public:
    struct Options {
        TierId id{};
        /// Directories that exist and are writable, and block devices if `block_devices` says so;
        /// extents are striped over all of them.
        std::vector<std::string> places;
        std::uint64_t size_bytes = 0;  ///< most that may be used; 0: nine tenths of what is free
        /// The files grow by this much, up to size_bytes.
        std::uint64_t growth_bytes = std::uint64_t{256} << 20;
        const SystemCalls* calls = &SystemCalls::real();
        bool block_devices = false;  ///< whether a device in `places` may be overwritten
        std::size_t queue_depth = 32;
        std::uint64_t block_bytes = std::uint64_t{512} << 10;  ///< of one transfer; whole pages
        bool ring = true;    ///< false: no io_uring even if the system has it
        bool direct = true;  ///< false: through the page cache even if the files take O_DIRECT
        /// For how long a peak of use keeps its blocks.
        std::uint64_t keep_ns = std::uint64_t{10} * 1'000'000'000;
        int numa_node = -1;  ///< that the medium hangs off; for info()
        std::uint64_t (*now_ns)() noexcept = &monotonic_ns;
    };

    /// Errors: those of SwapFiles::open; invalid_argument (no depth, a block that is not whole
    /// pages, more bytes than a device has), no_space (not even the first page fits).
    static Result<std::unique_ptr<SwapTier>> create(const Options& options) noexcept;
    /// Discards what lies on devices; files have no name and vanish by themselves.
    ~SwapTier() override;

    const TierInfo& info() const noexcept override { return info_; }
    TierUsage usage() const noexcept override { return meter_.usage(); }
    /// When the file system is full the files stop growing; what they have is used further.
    Result<Extent> reserve(std::uint64_t size_bytes) noexcept override;
    void release(const Extent& extent) noexcept override;
    Result<void> write(const Extent& extent, std::uint64_t offset,
                       std::span<const std::byte> bytes) noexcept override;
    Result<void> read(const Extent& extent, std::uint64_t offset,
                      std::span<std::byte> bytes) noexcept override;
    using Tier::fence;
    /// Nothing to wait for: a write has returned only when its bytes can be read back.
    Result<void> fence(std::span<const Extent> extents) noexcept override;
    std::byte* address(const Extent& extent) const noexcept override;
    Result<std::unique_ptr<TransferQueue>> open_queue() noexcept override;
    void calibrated(const TierSpeed& speed) noexcept override {
        info_.speed = speed;
        meter_.restart_peak();
    }

    /// Bytes that have blocks on disk now, used or kept for reuse.
    std::uint64_t allocated_bytes() const noexcept;

   private:
    SwapTier(const Options& options, SwapFiles files, std::uint64_t capacity_bytes);
    static Result<std::unique_ptr<SwapTier>> create_on(const Options& options, SwapFiles files);
    Result<void> start();
    Result<Extent> reserve_locked(std::uint64_t size_bytes);
    Result<void> allocate_for(std::uint64_t offset, std::uint64_t size_bytes);
    void give_back_remains(const Range& step) noexcept;
    void punch_hole() noexcept;
    Result<std::unique_ptr<SwapQueue>> new_queue(bool register_staging) noexcept;
    Result<std::unique_ptr<SwapQueue>> take_queue() noexcept;
    void put_back(std::unique_ptr<SwapQueue> queue) noexcept;
    Result<void> run(Transfer::Direction direction, const Extent& extent, std::uint64_t offset,
                     std::span<std::byte> bytes) noexcept;

    Options options_;
    SwapFiles files_;
    TierInfo info_;
    bool ring_ = false;
    TierMeter meter_;
    mutable std::mutex mutex_;  // guards the rest
    SwapRoom room_;
    bool can_punch_ = true;
    std::vector<std::unique_ptr<SwapQueue>> idle_queues_;  // for write() and read()
};

}  // namespace frostline
