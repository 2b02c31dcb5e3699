// The options of a manager, and the one place where their names and texts are understood: the C
// interface, Python and the command line all come through here.
#pragma once

#include "bindings/api.h"
#include "tiers/numa_placement.h"
#include "tiers/result.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace frostline {

struct ManagerOptions {
    /// Budget of the device tier, which is then the fastest; nothing: no such tier. Tensors lie in
    /// the GPU's memory then, and pin() gives device addresses.
    std::optional<std::uint64_t> device_bytes{};
    /// Whose memory that is, or for which GPU DRAM is pinned, as CUDA counts them; nothing: 0.
    std::optional<int> gpu{};
    std::optional<std::uint64_t>
        dram_bytes{};              ///< budget of the DRAM tier; must be given, may be 0
    std::string pmem_path{};       ///< file of the pmem tier; empty: no such tier
    std::uint64_t pmem_bytes = 0;  ///< 0: the whole file if it exists, else 1 GiB
    /// Directories of the swap files, which are striped over all of them; empty: no such tier.
    std::vector<std::string> swap_places{};
    std::uint64_t swap_bytes = 0;  ///< most that they may grow to; 0: nine tenths of what is free
    bool swap_devices = false;     ///< whether a place may be a block device, which is overwritten
    NumaPlacement numa{};          ///< where the DRAM tier's pages lie
    /// A NUMA node whose memory is a tier of its own below DRAM, such as CXL memory, and its
    /// budget. Both or none.
    std::optional<int> far_node{};
    std::optional<std::uint64_t> far_bytes{};
    /// Register DRAM with the GPU's driver, if there is a GPU; a device tier does so anyway.
    bool pin = false;
    bool verify = false;  ///< checksum all that leaves DRAM and compare it when it returns
    /// Take the tiers' speeds from the user's cache, or measure those that it does not know (within
    /// two seconds). FROSTLINE_CALIBRATION in the environment has the last word.
    bool calibrate = true;
};

/// Sets one option from text: device, gpu, dram, pmem, pmem_bytes, swap (places separated by
/// colons), swap_bytes, swap_devices, numa (none, bind:0,1, preferred:0 or interleave:0,1),
/// far_node, far_bytes, pin, verify, calibrate. Errors: invalid_argument (unknown name, listing the
/// known ones; a value that does not parse).
FROSTLINE_API Result<void> set_option(ManagerOptions& options, std::string_view name,
                                      std::string_view value);

}  // namespace frostline
