// The memory of one GPU. Addresses are reserved once, as many as there could ever be a use for;
// physical memory comes and goes behind them. An extent is either backed, all of it, or not.
//
// Rule of concurrency. The lock guards which addresses are taken and what backs them; it is not
// held while the driver makes, maps or unmaps memory, because that takes long: an extent that is
// being backed belongs to the thread that does it. Nothing is unmapped while work may use it: that
// is for those who release an extent, and who know the streams that used it, to wait for.
#pragma once

#include "tiers/cuda_stream.h"
#include "tiers/device_chunks.h"
#include "tiers/device_copies.h"
#include "tiers/free_extents.h"
#include "tiers/host_registration.h"
#include "tiers/pinned_staging.h"
#include "tiers/tier.h"
#include "tiers/tier_meter.h"
#include "tiers/topology.h"

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

namespace frostline {

/// Thread-safe.
class DeviceTier final : public Tier {
   public:
    struct Options {
        TierId id{};
        std::shared_ptr<const CudaContext> context;
        std::uint64_t capacity_bytes = 0;  ///< of physical memory, rounded down to the granularity
        /// Of one physical handle of a large extent; see DeviceChunks.
        std::uint64_t chunk_bytes = std::uint64_t{16} << 20;
        /// Host memory that the GPU reaches by itself; nullptr: none. Outlives the tier.
        const HostRegistration* registered = nullptr;
        std::vector<int> peers;   ///< other devices that may read and write this memory
        int numa_node = kNoNode;  ///< that the GPU hangs off: where staging comes from
    };

    /// Errors: invalid_argument (less capacity than the granularity, more than the GPU has, a peer
    /// that cannot reach it), those of DeviceChunks::create(), the driver's.
    static Result<std::unique_ptr<DeviceTier>> create(const Options& options) noexcept;
    /// Waits for nothing; nobody uses its memory any more.
    ~DeviceTier() override;

    const TierInfo& info() const noexcept override { return info_; }
    TierUsage usage() const noexcept override {
        TierUsage usage = meter_.usage();
        usage.staging_bytes = staging_.bytes();
        return usage;
    }
    Result<Extent> reserve(std::uint64_t size_bytes) noexcept override;
    Result<Extent> reserve_room(std::uint64_t size_bytes) noexcept override;
    /// Puts memory behind all of an extent that has none; its content is undefined. All or nothing.
    /// What has addresses only is charged to the budget now, and not if this fails.
    /// Errors: busy (it has memory already), closed, no_space (budget or device are full), the
    /// driver's.
    Result<void> back(const Extent& extent) noexcept override;
    /// No work may use the extent any longer.
    void release(const Extent& extent) noexcept override;
    Result<void> write(const Extent& extent, std::uint64_t offset,
                       std::span<const std::byte> bytes) noexcept override;
    Result<void> read(const Extent& extent, std::uint64_t offset,
                      std::span<std::byte> bytes) noexcept override;
    using Tier::fence;
    /// Transfers have ended when they are told to have; there is nothing to wait for.
    Result<void> fence(std::span<const Extent> extents) noexcept override;
    std::byte* address(const Extent& extent) const noexcept override;
    Result<std::unique_ptr<TransferQueue>> open_queue() noexcept override;
    void calibrated(const TierSpeed& speed) noexcept override {
        info_.speed = speed;
        meter_.restart_peak();
    }

    /// Addresses without memory behind them, which cost nothing of the budget until back().
    /// Errors: no_space (no addresses are left in one piece), out_of_memory.
    Result<Extent> reserve_addresses(std::uint64_t size_bytes) noexcept;
    /// Takes the memory from behind an extent, which keeps its addresses. No work may use it any
    /// longer. Errors: not_found (it has none), the driver's; then the tier is closed, its refusals
    /// say what failed first, and the extent never has memory again.
    Result<void> unback(const Extent& extent) noexcept;

    std::uint64_t kept_bytes() const noexcept { return chunks_->kept_bytes(); }
    const DeviceCopies& copies() const noexcept { return copies_; }

   private:
    // Waits for its copies one at a time.
    struct Lane {
        explicit Lane(CudaStream made) : stream(std::move(made)) {}
        std::mutex mutex;
        CudaStream stream;
    };
    // Bare: addresses only. Room: charged to the budget. Lost: it is not known whether memory is
    // still mapped there.
    enum class State : std::uint8_t { bare, room, changing, backed, lost };
    struct Backing {
        std::uint64_t length_bytes = 0;
        State state = State::bare;
        std::vector<DeviceChunk> chunks;
    };

    DeviceTier(const Options& options, std::unique_ptr<DeviceChunks> chunks);
    Result<void> reserve_arena();
    Result<void> open_lanes();
    Result<void> charge(Backing& backing) noexcept;
    Result<void> attach(const Extent& extent, Backing& backing) noexcept;
    Result<void> detach(const Extent& extent, Backing& backing) noexcept;
    std::uint64_t charged(std::uint64_t size_bytes) const noexcept;
    Backing& backing_of(const Extent& extent) noexcept;
    void forget(const Extent& extent);

    std::shared_ptr<const CudaContext> context_;
    TierInfo info_;
    TierMeter meter_;
    std::unique_ptr<DeviceChunks> chunks_;
    DeviceCopies copies_;
    PinnedStaging staging_;
    std::vector<CUmemAccessDesc> access_;
    CUdeviceptr arena_ = 0;
    std::uint64_t arena_bytes_ = 0;
    std::unique_ptr<Lane> reading_;
    std::unique_ptr<Lane> writing_;

    std::mutex mutex_;              // guards everything below
    std::optional<Error> failure_;  // the first, which closed the tier
    FreeExtents addresses_{0};
    std::unordered_map<std::uint64_t, Backing> backings_;  // by offset
};

}  // namespace frostline
