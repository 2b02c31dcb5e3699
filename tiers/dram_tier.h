// Host memory under a hard budget. At every moment
//     reserved + adopted + cached <= capacity,
// where cached bytes are arena pages that were released and are still resident: they are kept for
// the next reservation, because faulting pages in costs as much as copying them, and given back to
// the system as soon as the budget is needed otherwise. Pinned pages that no extent uses are
// cached, too; those in one chunk with an extent cannot be given back, and then the budget refuses
// sooner.
#pragma once

#include "tiers/buffer_release.h"
#include "tiers/dram_arena.h"
#include "tiers/dram_layout.h"
#include "tiers/host_registration.h"
#include "tiers/numa_placement.h"
#include "tiers/system_calls.h"
#include "tiers/tier.h"
#include "tiers/tier_meter.h"
#include "tiers/topology.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

namespace frostline {

/// The DRAM tier. An extent's offset is its address. A node that is memory only (CXL, pmem used as
/// system memory) is a tier of its own: one that is bound to it. Thread-safe.
class DramTier final : public Tier {
   public:
    enum class HugePages : std::uint8_t {
        never,
        /// For the whole huge pages inside an extent. Measured on an EPYC with Linux 6.18: extents
        /// of 2 MiB and 32 MiB are touched for the first time at 21 GB/s instead of 3, copied into
        /// at the same 17 GB/s once they are resident, and the advice costs 5 us for each extent.
        large_extents,
    };
    struct Options {
        TierId id{};
        std::uint64_t capacity_bytes = 0;  ///< may be 0: then everything is refused
        const SystemCalls* calls = &SystemCalls::real();
        NumaPlacement numa{};
        HugePages huge_pages = HugePages::large_extents;
        /// Registers arena memory with a GPU as it is reserved, and outlives the tier; nullptr: not
        /// pinned. A reservation takes milliseconds where it registers a chunk. Adopted buffers are
        /// never pinned.
        HostRegistration* pin_for_device = nullptr;
        /// Which nodes there are; nullptr: this machine's, read where `numa` names any.
        const Topology* topology = nullptr;
    };

    /// Reserves address space only (and one pinned chunk); memory is used when it is reserved and
    /// touched. What the system refuses but the tier can do without is named in info().fallback.
    /// Errors: invalid_argument (nodes that the machine does not have; a budget larger than the
    /// nodes it is bound to), out_of_memory, those of Topology::create().
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
    std::byte* address(const Extent& extent) const noexcept override;
    Result<std::unique_ptr<TransferQueue>> open_queue() noexcept override;
    void calibrated(const TierSpeed& speed) noexcept override {
        info_.speed = speed;
        meter_.restart_peak();
    }

    /// Takes over a buffer that already lies in host memory, without copying it; it counts against
    /// the budget with its exact size. The caller may not write to it until it is released.
    /// Errors: no_space, and then `release` is not called; invalid_argument (null, empty), busy
    /// (adopted already).
    Result<Extent> adopt(std::span<std::byte> buffer, BufferRelease release) noexcept;

    /// Undoes an adopt(): the buffer is its owner's again, and `release` is not called.
    void cancel_adoption(const Extent& extent) noexcept;

    /// Resident bytes of the arenas that no extent uses.
    std::uint64_t cached_bytes() const noexcept;

    /// Where the pages of an extent, reserved or adopted, lie at this moment. Errors: what
    /// move_pages() says, out_of_memory.
    Result<Placement> placement(const Extent& extent) const noexcept;

    /// Released bytes that were found on a node where they should not be, on machines with several.
    /// They were given back at once, unless pinned, so that the next extent gets others.
    std::uint64_t misplaced_bytes() const noexcept { return misplaced_bytes_; }

    /// Why memory is no longer pinned: a driver may refuse later than at the start. Nothing if it
    /// is, or never was to be.
    std::optional<Error> pinning_error() const noexcept;

   private:
    explicit DramTier(const Options& options);
    Result<void> map_arenas(const Options& options, const NumaPlacement& numa,
                            const Topology* topology);
    void probe_pinning();
    Result<Extent> reserve_locked(std::uint64_t size_bytes);
    Result<Extent> reserve_in(DramArena& arena, std::uint64_t size_bytes);
    bool fits(std::uint64_t size_bytes) const noexcept;
    Error does_not_fit(std::uint64_t size_bytes) const noexcept;
    Result<void> make_room(std::uint64_t growth_bytes, const DramArena* into, const Range& keep);
    void give_locked(DramArena& arena, const Extent& extent);
    DramArena* arena_of(const Extent& extent) noexcept;
    DramArena* nearest_arena() noexcept;
    std::uint64_t cached_bytes_locked() const noexcept;

    const SystemCalls* calls_;
    TierInfo info_;
    TierMeter meter_;
    DramMapping mapping_;
    bool verified_ = false;  // there are nodes on which pages could be misplaced
    std::atomic<std::uint64_t> misplaced_bytes_{0};

    mutable std::mutex mutex_;  // guards everything below; which arenas there are is fixed
    std::vector<DramArena> arenas_;
    std::optional<Error> pinning_error_;
    struct Adopted {
        std::uint64_t size_bytes;
        BufferRelease release;
    };
    std::unordered_map<std::uint64_t, Adopted> adopted_;  // by address
};

}  // namespace frostline
