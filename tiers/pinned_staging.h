// Pinned host memory through which those copies of a GPU go that cannot reach memory as it lies:
// huge pages, which disks take quickly, too, each made when it is first wanted, near the GPU, and
// counted as long as it is pinned: it is part of no budget. A forked child does not have it, so
// that nothing there can hold it.
#pragma once

#include "tiers/cuda_context.h"
#include "tiers/huge_page_memory.h"
#include "tiers/result.h"
#include "tiers/system_calls.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

namespace frostline {

/// The staging of one device. Thread-safe.
class PinnedStaging {
   public:
    /// kHugePageBytes of staging.
    struct Page {
        std::span<std::byte> bytes;  ///< empty: none
        HugePageMemory memory;       ///< where they lie; none: in memory of the driver's own
    };

    /// `numa_node`: that the GPU hangs off, or kNoNode. `calls` outlive it.
    PinnedStaging(std::shared_ptr<const CudaContext> context, int numa_node,
                  const SystemCalls& calls = SystemCalls::real()) noexcept
        : context_(std::move(context)), numa_node_(numa_node), calls_(calls) {}

    /// Memory that is registered with the driver or, where that is refused, allocated by it; to be
    /// given back to give(). Another try may succeed. Errors: no_space (the driver has no memory),
    /// the driver's.
    Result<Page> take() noexcept;
    /// No copy uses it any longer. What the driver does not let go of stays where it is, for good.
    void give(Page page) noexcept;

    std::uint64_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }

   private:
    Result<Page> register_page() const noexcept;
    Result<Page> allocate_page() const noexcept;

    const std::shared_ptr<const CudaContext> context_;
    const int numa_node_;
    const SystemCalls& calls_;
    std::atomic<std::uint64_t> bytes_{0};
};

}  // namespace frostline
