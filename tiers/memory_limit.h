// How much memory this process may have: the machine's, or less where a control group says so, as
// it does in a container. Of the group and all above it the lowest limit counts.
#pragma once

#include <cstdint>
#include <string>

namespace frostline {

/// In bytes; control groups of version 1 and 2. What cannot be read limits nothing. `root` stands
/// before /proc and before the places where control groups are mounted; it is for tests. May throw
/// std::bad_alloc.
std::uint64_t memory_limit_bytes(const std::string& root = {});

}  // namespace frostline
