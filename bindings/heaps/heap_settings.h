// The options of a heap as its opener writes them, and the one place where they are understood.
#pragma once

#include "tiers/result.h"
#include "tiers/topology.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace frostline {

enum class HeapKind : std::uint8_t { host, device };

struct HeapSettings {
    std::optional<HeapKind> kind;      ///< must be given
    std::string name;                  ///< in messages; empty: by kind
    std::uint64_t capacity_bytes = 0;  ///< 0: what the device or the machine has
    std::uint64_t chunk_bytes = std::uint64_t{2} << 20;
    std::optional<int> gpu;   ///< the heap's own, or the one that host memory is pinned for
    std::vector<int> peers;   ///< GPUs that use a device heap's memory, too
    int numa_node = kNoNode;  ///< where host memory lies
    bool pin = false;         ///< page-lock host memory
};

/// Sets one option from text: kind, name, capacity, chunk, gpu, peers, numa_node or pin. Errors:
/// invalid_argument (unknown name, listing the known ones; a value that does not parse).
Result<void> set_option(HeapSettings& settings, std::string_view name, std::string_view value);

/// Whether the options belong together. Errors: invalid_argument, naming the one that does not.
Result<void> check_settings(const HeapSettings& settings);

}  // namespace frostline
