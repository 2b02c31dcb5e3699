// The table of copy paths: by which method bytes go from one kind of tier to another.
#pragma once

#include "tiers/extent.h"
#include "tiers/result.h"
#include "tiers/tier.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace frostline {

enum class CopyMethod : std::uint8_t {
    write,         ///< the CPU: the target's write() takes the bytes where they lie in memory
    read,          ///< the CPU: the source's read() puts the bytes where they belong in memory
    staged,        ///< the CPU: read() into a buffer, write() from it
    queued_write,  ///< the target's queue takes the bytes where they lie in memory
    queued_read,   ///< the source's queue puts the bytes where they belong in memory
    staged_write,  ///< read() into the staging of the target's queue
    staged_read,   ///< write() from the staging of the source's queue
    relayed,       ///< both have queues, and pieces pass through the staging of the device's
};

/// The method from one kind to another.
CopyMethod copy_method(TierKind source, TierKind target) noexcept;

/// Whether transfers are kept in flight on a queue, the target's, the source's or both. With
/// staging that makes a pipeline: one medium works while the CPU, or the other one, works, too.
constexpr bool uses_queue(CopyMethod method) noexcept {
    return method >= CopyMethod::queued_write;
}
constexpr bool uses_target_queue(CopyMethod method) noexcept {
    return method == CopyMethod::queued_write || method == CopyMethod::staged_write;
}

/// One chunk of a copy that the CPU makes.
struct CopyChunk {
    CopyMethod method{};  ///< write, read or staged
    Tier* source_tier = nullptr;
    const Extent* source = nullptr;
    Tier* target_tier = nullptr;
    const Extent* target = nullptr;
    std::uint64_t offset = 0;
    std::size_t size_bytes = 0;
    std::span<std::byte> staging;  ///< room for the chunk; with staged only
};

/// Copies the chunk; returns where its bytes lie in host memory, which is valid until the next
/// chunk (for checksums).
Result<std::span<const std::byte>> copy_chunk(const CopyChunk& chunk) noexcept;

}  // namespace frostline
