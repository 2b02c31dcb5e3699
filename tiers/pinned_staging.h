// Pinned host memory through which those copies of a GPU go that cannot reach memory as it lies.
// Every buffer is made when it is first wanted, near the GPU, and is counted as long as it exists:
// it is part of no budget. A forked child does not have it, so that nothing there can hold it.
#pragma once

#include "tiers/cuda_context.h"
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
    static constexpr std::uint64_t kBufferBytes = std::uint64_t{1} << 20;

    /// `numa_node`: that the GPU hangs off, or kNoNode. `calls` outlive it.
    PinnedStaging(std::shared_ptr<const CudaContext> context, int numa_node,
                  const SystemCalls& calls = SystemCalls::real()) noexcept
        : context_(std::move(context)), numa_node_(numa_node), calls_(calls) {}

    /// A buffer of kBufferBytes, to be given back to give(). Errors: no_space (the driver has no
    /// memory), the driver's.
    Result<std::span<std::byte>> take() noexcept;
    /// No copy uses it any longer.
    void give(std::span<std::byte> buffer) noexcept;

    std::uint64_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }

   private:
    const std::shared_ptr<const CudaContext> context_;
    const int numa_node_;
    const SystemCalls& calls_;
    std::atomic<std::uint64_t> bytes_{0};
};

}  // namespace frostline
