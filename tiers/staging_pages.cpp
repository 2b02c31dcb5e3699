// A page is the unit: small enough that a queue of few copies pins little.
#include "tiers/staging_pages.h"

#include "tiers/check.h"

#include <utility>

namespace frostline {

StagingPages::StagingPages(Options options) : options_(std::move(options)) {
    FROSTLINE_CHECK(options_.buffer_bytes > 0 && kHugePageBytes % options_.buffer_bytes == 0,
                    "staging buffers must divide a huge page");
    pages_.resize((options_.buffers + buffers_per_page() - 1) / buffers_per_page());
}

StagingPages::~StagingPages() {
    const CudaDriver& driver = options_.context->driver();
    for (const Page& page : pages_) {
        if (page.memory == nullptr) continue;
        const Result<void> freed = options_.context->run([&] {
            return page.registered
                       ? driver.check("cuMemHostUnregister",
                                      driver.cuMemHostUnregister(page.memory))
                       : driver.check("cuMemFreeHost", driver.cuMemFreeHost(page.memory));
        });
        // What the driver does not let go of must not become anybody else's addresses.
        if (!freed && page.registered) memory_.abandon();
    }
}

Result<std::span<std::byte>> StagingPages::buffer(std::size_t index) noexcept {
    const std::size_t page = index / buffers_per_page();
    if (pages_.at(page).memory == nullptr) FROSTLINE_TRY_VOID(pin(page));
    const std::uint64_t offset = index % buffers_per_page() * options_.buffer_bytes;
    return std::span(pages_[page].memory + offset, options_.buffer_bytes);
}

Result<void> StagingPages::pin(std::size_t index) noexcept {
    if (memory_.bytes().empty()) {
        FROSTLINE_TRY(memory_,
                      HugePageMemory::map(*options_.calls, pages_.size() * kHugePageBytes));
    }
    Page& page = pages_[index];
    std::byte* const memory = memory_.bytes().data() + index * kHugePageBytes;
    if (register_page(memory)) {
        page = {memory, true};
        return ok();
    }
    FROSTLINE_TRY(page.memory, allocate_page());
    return ok();
}

Result<void> StagingPages::register_page(std::byte* memory) const noexcept {
    const CudaDriver& driver = options_.context->driver();
    FROSTLINE_TRY_VOID(driver.need({CudaFeature::host_registration}));
    return options_.context->run([&] {
        return driver.check(
            "cuMemHostRegister",
            driver.cuMemHostRegister(memory, kHugePageBytes, CU_MEMHOSTREGISTER_PORTABLE));
    });
}

Result<std::byte*> StagingPages::allocate_page() const noexcept {
    const CudaDriver& driver = options_.context->driver();
    void* made = nullptr;
    FROSTLINE_TRY_VOID(options_.context->run([&] {
        return driver.check("cuMemHostAlloc",
                            driver.cuMemHostAlloc(&made, kHugePageBytes, CU_MEMHOSTALLOC_PORTABLE));
    }));
    return static_cast<std::byte*>(made);
}

}  // namespace frostline
