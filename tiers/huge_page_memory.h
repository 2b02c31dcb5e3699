// Memory for transfers to and from a disk: it starts at a huge page and consists of such, where the
// system has any.
//
// A disk is handed every run of a transfer that lies together in physical memory by itself, and
// small pages lie apart. Measured with transfers of 512 KiB, 32 in flight, past the page cache, on
// a virtual disk: writing from huge pages is 2.1 times as fast as from small ones, reading 2.8
// times, for a sixth of the processor's time.
#pragma once

#include "tiers/result.h"
#include "tiers/system_calls.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace frostline {

inline constexpr std::uint64_t kHugePageBytes = std::uint64_t{2} << 20;

/// Owns its memory, which becomes resident as it is touched. Not thread-safe.
class HugePageMemory {
   public:
    /// `size_bytes`, rounded up to huge pages. `calls` outlives it. Errors: out_of_memory.
    static Result<HugePageMemory> map(const SystemCalls& calls, std::uint64_t size_bytes) noexcept;

    HugePageMemory() = default;  ///< none
    HugePageMemory(HugePageMemory&& other) noexcept;
    HugePageMemory& operator=(HugePageMemory&& other) noexcept;
    ~HugePageMemory();

    std::span<std::byte> bytes() const noexcept { return bytes_; }

    /// The memory is never unmapped: somebody may use it for good.
    void abandon() noexcept { mapped_ = bytes_ = {}; }

   private:
    const SystemCalls* calls_ = nullptr;
    std::span<std::byte> mapped_;
    std::span<std::byte> bytes_;  // of it
};

}  // namespace frostline
