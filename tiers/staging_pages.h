// Buffers of host memory that a GPU's copies reach and disks take quickly: huge pages, each
// registered with the driver when one of its buffers is first needed. A driver that registers
// nothing allocates the buffers instead.
#pragma once

#include "tiers/cuda_context.h"
#include "tiers/huge_page_memory.h"
#include "tiers/result.h"
#include "tiers/system_calls.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace frostline {

/// Not thread-safe.
class StagingPages {
   public:
    struct Options {
        std::shared_ptr<const CudaContext> context;
        std::size_t buffers = 0;
        std::uint64_t buffer_bytes = 0;  ///< divides kHugePageBytes
        const SystemCalls* calls = &SystemCalls::real();
    };

    /// Takes no memory for the buffers yet. May throw std::bad_alloc.
    explicit StagingPages(Options options);
    StagingPages(const StagingPages&) = delete;
    StagingPages& operator=(const StagingPages&) = delete;
    /// No copy may use the buffers any longer.
    ~StagingPages();

    /// The `index`-th buffer, always the same memory. Errors: out_of_memory, the driver's; another
    /// try may succeed.
    Result<std::span<std::byte>> buffer(std::size_t index) noexcept;

   private:
    struct Page {
        std::byte* memory = nullptr;  ///< nullptr: not needed yet
        bool registered = false;      ///< false: the driver's own
    };

    std::size_t buffers_per_page() const noexcept { return kHugePageBytes / options_.buffer_bytes; }
    Result<void> pin(std::size_t index) noexcept;
    Result<void> register_page(std::byte* memory) const noexcept;
    Result<std::byte*> allocate_page() const noexcept;

    Options options_;
    HugePageMemory memory_;
    std::vector<Page> pages_;
};

}  // namespace frostline
