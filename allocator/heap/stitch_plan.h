// How scattered free memory can serve one large request. Physical chunks are mapped at the start of
// new addresses one after the other, so a window over them is one run of bytes: it may start inside
// a chunk whose end is free and end inside a chunk whose start is free, and every chunk between is
// free altogether. Nothing is moved, and what else lies in the first and the last stays where it
// is.
#pragma once

#include "allocator/heap/heap_space.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace frostline {

struct StitchPlan {
    std::vector<HeapSpace::Piece> pieces;  ///< in the order of the window's addresses
    std::uint64_t offset_bytes = 0;        ///< where the window starts within its first chunk
};

/// A window of `size_bytes` from what is free for all and for `tag`, using up as few whole free
/// chunks as possible, then leaving as little as possible beside it; nothing when the pieces do not
/// suffice. `more_chunks` whole chunks are assumed in addition, to find out how many would; a plan
/// that needs them has fewer pieces and cannot be carried out. O(n log n) in the free blocks.
std::optional<StitchPlan> plan_stitch(const HeapSpace& space, std::uint64_t size_bytes,
                                      StreamTag tag, std::uint64_t more_chunks = 0) noexcept;

}  // namespace frostline
