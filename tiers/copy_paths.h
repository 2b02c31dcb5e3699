// The table of copy paths: which function moves a chunk from one kind of tier to another.
#pragma once

#include "tiers/tier.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace frostline {

/// One chunk of a copy. `staging` is room for the chunk in host memory; paths that do not need it
/// get an empty one.
struct CopyChunk {
    Tier* source_tier;
    const Extent* source;
    Tier* target_tier;
    const Extent* target;
    std::uint64_t offset;
    std::size_t size_bytes;
    std::span<std::byte> staging;
};

/// Copies the chunk; returns where its bytes lie in host memory, which is valid until the next
/// chunk (for checksums).
using CopyPath = Result<std::span<const std::byte>> (*)(const CopyChunk& chunk) noexcept;

struct CopyPathEntry {
    CopyPath path = nullptr;  ///< nullptr: there is no path between these kinds
    bool needs_staging = false;
};

/// The path from one kind to another.
const CopyPathEntry& copy_path(TierKind source, TierKind target) noexcept;

}  // namespace frostline
