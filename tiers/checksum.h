// XXH3-64 over an extent whose blocks arrive in any order and from any thread: what left a tier's
// care must be what comes back. The sum is XXH3-64 over the XXH3-64s of the extent's pages, so
// that copies with many transfers in flight need not wait for each other to be summed.
#pragma once

#include "tiers/page.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace frostline {

/// Different blocks may be added by different threads at once.
class Checksum {
   public:
    static constexpr std::uint64_t kBlockBytes = kPageBytes;

    /// Of an extent of `length_bytes` > 0. May throw std::bad_alloc.
    explicit Checksum(std::uint64_t length_bytes);

    /// Bytes at `offset` of the extent, a multiple of kBlockBytes; they end at such a multiple or
    /// where the extent ends.
    void add(std::uint64_t offset, std::span<const std::byte> bytes) noexcept;

    /// Once every block was added.
    std::uint64_t value() const noexcept;

   private:
    std::vector<std::uint64_t> blocks_;
};

/// The same sum of bytes that lie together. Allocates nothing.
std::uint64_t checksum(std::span<const std::byte> bytes) noexcept;

}  // namespace frostline
