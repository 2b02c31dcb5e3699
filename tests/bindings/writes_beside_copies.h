// A tensor may be pinned and written while a copy of it is being made to another tier: the copy is
// thrown away then, whatever it has read. ThreadSanitizer, which watches the emulated copy engines,
// cannot know that; under it nothing is written that may be under way.
#pragma once

namespace frostline {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kWritesBesideCopies = false;
#else
inline constexpr bool kWritesBesideCopies = true;
#endif

}  // namespace frostline
