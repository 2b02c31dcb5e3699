// Pages come from the node that the calling thread prefers: it is that thread which the driver
// touches them on, be it to register or to allocate them.
#include "tiers/pinned_staging.h"

#include "tiers/numa_placement.h"

#include <sys/mman.h>

namespace frostline {

Result<PinnedStaging::Page> PinnedStaging::take() noexcept {
    const PreferredNode near(calls_, numa_node_);
    Result<Page> page = register_page();
    if (!page) page = allocate_page();
    if (page) bytes_.fetch_add(page->bytes.size(), std::memory_order_relaxed);
    return page;
}

Result<PinnedStaging::Page> PinnedStaging::register_page() const noexcept {
    const CudaDriver& driver = context_->driver();
    FROSTLINE_TRY_VOID(driver.need({CudaFeature::host_registration}));
    FROSTLINE_TRY(HugePageMemory memory, HugePageMemory::map(calls_, kHugePageBytes));
    const std::span<std::byte> bytes = memory.bytes();
    // Where this is refused a child has the memory, too, and nobody in it to use it.
    (void)calls_.madvise(bytes.data(), bytes.size(), MADV_DONTFORK);
    FROSTLINE_TRY_VOID(context_->run([&] {
        return driver.check("cuMemHostRegister",
                            driver.cuMemHostRegister(bytes.data(), bytes.size(), 0));
    }));
    return Page{bytes, std::move(memory)};
}

Result<PinnedStaging::Page> PinnedStaging::allocate_page() const noexcept {
    const CudaDriver& driver = context_->driver();
    void* made = nullptr;
    FROSTLINE_TRY_VOID(context_->run([&] {
        return driver.check("cuMemHostAlloc", driver.cuMemHostAlloc(&made, kHugePageBytes, 0));
    }));
    (void)calls_.madvise(made, kHugePageBytes, MADV_DONTFORK);  // as above
    return Page{std::span(static_cast<std::byte*>(made), kHugePageBytes), {}};
}

void PinnedStaging::give(Page page) noexcept {
    const CudaDriver& driver = context_->driver();
    const bool registered = !page.memory.bytes().empty();
    const Result<void> freed = context_->run([&] {
        return registered ? driver.check("cuMemHostUnregister",
                                         driver.cuMemHostUnregister(page.bytes.data()))
                          : driver.check("cuMemFreeHost", driver.cuMemFreeHost(page.bytes.data()));
    });
    // What the driver did not take back still counts, and must not become anybody else's addresses.
    if (freed) {
        bytes_.fetch_sub(page.bytes.size(), std::memory_order_relaxed);
    } else {
        page.memory.abandon();
    }
}

}  // namespace frostline
