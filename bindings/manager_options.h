// The options of a manager, and the one place where their names and texts are understood: the C
// interface, Python and the command line all come through here.
#pragma once

#include "bindings/api.h"
#include "tiers/result.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace frostline {

struct ManagerOptions {
    std::optional<std::uint64_t>
        dram_bytes{};              ///< budget of the DRAM tier; must be given, may be 0
    std::string pmem_path{};       ///< file of the pmem tier; empty: no such tier
    std::uint64_t pmem_bytes = 0;  ///< 0: the whole file if it exists, else 1 GiB
    std::string swap_directory{};  ///< where the swap file goes; empty: no such tier
    std::uint64_t swap_bytes = 0;  ///< most that it may grow to; 0: nine tenths of what is free
    bool verify = false;           ///< checksum all that leaves DRAM and compare it when it returns
    /// Take the tiers' speeds from the user's cache, or measure those that it does not know (within
    /// two seconds). FROSTLINE_CALIBRATION in the environment has the last word.
    bool calibrate = true;
};

/// Sets one option from text: dram, pmem, pmem_bytes, swap, swap_bytes, verify,
/// calibrate.
/// Errors: invalid_argument (unknown name, listing the known ones; a value that does not parse).
FROSTLINE_API Result<void> set_option(ManagerOptions& options, std::string_view name,
                                      std::string_view value);

}  // namespace frostline
