// The driver's own pinned memory, which it takes from the node that the calling thread prefers.
#include "tiers/pinned_staging.h"

#include "tiers/numa_placement.h"

#include <sys/mman.h>

namespace frostline {

Result<std::span<std::byte>> PinnedStaging::take() noexcept {
    const CudaDriver& driver = context_->driver();
    void* made = nullptr;
    const PreferredNode near(calls_, numa_node_);
    FROSTLINE_TRY_VOID(context_->run([&] {
        return driver.check("cuMemHostAlloc",
                            driver.cuMemHostAlloc(&made, kBufferBytes, CU_MEMHOSTALLOC_PORTABLE));
    }));
    // Where this is refused a child has the memory, too, and nobody in it to use it.
    (void)calls_.madvise(made, kBufferBytes, MADV_DONTFORK);
    bytes_.fetch_add(kBufferBytes, std::memory_order_relaxed);
    return std::span(static_cast<std::byte*>(made), kBufferBytes);
}

void PinnedStaging::give(std::span<std::byte> buffer) noexcept {
    const CudaDriver& driver = context_->driver();
    const Result<void> freed = context_->run(
        [&] { return driver.check("cuMemFreeHost", driver.cuMemFreeHost(buffer.data())); });
    // What the driver did not take back still counts.
    if (freed) bytes_.fetch_sub(buffer.size(), std::memory_order_relaxed);
}

}  // namespace frostline
