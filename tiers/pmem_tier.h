// Persistent memory, or a file in its place. Bytes are durable when fence() has returned:
// pmem_drain on real persistent memory, pmem_msync on a file. Room that is handed out for the first
// time holds zeros, never what an earlier user of the medium left there.
#pragma once

#include "tiers/free_extents.h"
#include "tiers/host_registration.h"
#include "tiers/pmem_file.h"
#include "tiers/range_set.h"
#include "tiers/tier.h"
#include "tiers/tier_meter.h"
#include "tiers/writer_limit.h"

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
        /// No more threads than this copy into it at once; 0: as many as calibrated() finds best,
        /// and any number before that.
        std::uint32_t max_writers = 0;
        bool keep_content = false;  ///< as in PmemFile::Options
        bool allocate = true;       ///< as in PmemFile::Options
        int numa_node = -1;         ///< that it hangs off; for info()
        /// Registers real persistent memory with a GPU's driver, so that its copies need no
        /// staging; outlives the tier. Many drivers refuse that: then info().fallback says so, and
        /// they are staged.
        HostRegistration* registration = nullptr;
    };

    /// Errors: those of PmemFile::open.
    static Result<std::unique_ptr<PmemTier>> create(const Options& options) noexcept;

    ~PmemTier() override;

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
    std::byte* address(const Extent& extent) const noexcept override;
    Result<std::unique_ptr<TransferQueue>> open_queue() noexcept override;
    void calibrated(const TierSpeed& speed) noexcept override;

    /// The extent's bytes where they lie, for serving cold data without copying it back; good until
    /// release(). What is written there is durable after flush_in_place() of the range and then
    /// fence() of the extent, both by the thread that wrote. On a file the pages that are touched
    /// count as this process's memory until unmap_in_place(), release() or the extent's next
    /// read() or fence(). Errors: invalid_argument (not an extent of this tier).
    Result<std::span<std::byte>> map_in_place(const Extent& extent) noexcept;
    /// Starts writing back `range`, which lies within one extent's span; fence() waits for it.
    void flush_in_place(std::span<const std::byte> range) noexcept override;
    /// The pages are no longer needed here. The span stays good, but touching it maps them again.
    void unmap_in_place(const Extent& extent) noexcept;

   private:
    PmemTier(const Options& options, PmemFile file);
    void register_for_gpu() noexcept;
    RangeSet first_use_of(const Range& room);
    void scrub(const RangeSet& ranges) noexcept;
    void leave_process(std::byte* address, std::uint64_t size_bytes) const noexcept;

    const SystemCalls* calls_;
    HostRegistration* registration_;
    PmemFile file_;
    TierInfo info_;
    TierMeter meter_;
    WriterLimit writers_;
    bool writers_are_given_;
    std::mutex sync_mutex_;  // held by the one thread that syncs a file; before mutex_
    std::mutex mutex_;       // guards what follows, and whether the file is still to be removed
    FreeExtents free_;
    RangeSet scrubbed_;  // or written by this process; kept only if the file needs scrubbing
};

}  // namespace frostline
