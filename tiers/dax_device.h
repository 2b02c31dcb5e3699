// What the kernel says of a DAX character device (/dev/daxX.Y). Such a device has a fixed size and
// is mapped in whole alignments; both stand in sysfs, and nothing but a DAX device has both.
#pragma once

#include "tiers/result.h"
#include "tiers/system_calls.h"

#include <cstdint>
#include <string>

namespace frostline {

struct DaxDevice {
    std::uint64_t size_bytes = 0;  ///< whole alignments
    std::uint64_t alignment_bytes = 0;

    /// Of the character device with that number; `path` is for messages. Errors: invalid_argument
    /// (not a DAX device), io (sysfs cannot be read or makes no sense). Throws std::bad_alloc.
    static Result<DaxDevice> find(dev_t number, const std::string& path, const SystemCalls& calls);
};

}  // namespace frostline
