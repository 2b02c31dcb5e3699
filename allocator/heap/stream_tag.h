// A heap names streams by small numbers, because a driver's handle says nothing of which heap saw
// it, and every free range carries one.
#pragma once

#include <cstdint>

namespace frostline {

/// Which stream's work a free range waits for. Memory of tag t may be used on stream t at once,
/// and on any other after what t had queued when it was freed.
using StreamTag = std::uint16_t;

/// No work is outstanding: any stream may use it at once. Host memory has no other tag.
inline constexpr StreamTag kNoStream = 0;

}  // namespace frostline
