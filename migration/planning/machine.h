// The machine that a planner plans for: tiers, and links that copy between them. What links share
// (a bus, a disk) is a resource with a bandwidth of its own.
//
// Rule: a Machine is whole. Links name tiers and resources that exist, no two tiers, resources or
// links are the same, and every bandwidth is positive.
#pragma once

#include "tiers/result.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace frostline {

/// Places in Machine::tiers, ::resources and ::links.
using TierIndex = std::uint32_t;
using ResourceIndex = std::uint32_t;

struct MachineTier {
    std::string name;
    std::uint64_t size_bytes = 0;
};

struct MachineResource {
    std::string name;
    double bytes_per_second = 0;
};

/// A copy on a link runs at one rate from its start plus latency to its end, and loads all of the
/// link's resources at that rate.
struct MachineLink {
    TierIndex from = 0;
    TierIndex to = 0;
    std::vector<ResourceIndex> resources;
    std::uint64_t latency_ns = 0;
};

struct Machine {
    std::string name;
    TierIndex device = 0;  ///< the tier that kernels run from
    std::vector<MachineTier> tiers;
    std::vector<MachineResource> resources;
    std::vector<MachineLink> links;

    /// Null where there is none.
    const MachineLink* link(TierIndex from, TierIndex to) const noexcept;
    /// What one copy alone can carry: the least of the link's resources.
    double bytes_per_second(const MachineLink& link) const noexcept;
};

/// Reads a description in JSON (docs/formats.md). Errors, with the file and the place in it in
/// their message: invalid_argument, not_found, io, out_of_memory.
Result<Machine> read_machine(const std::filesystem::path& path) noexcept;
/// The same from memory; `name` stands for the file in messages.
Result<Machine> parse_machine(std::string_view json, std::string_view name) noexcept;

}  // namespace frostline
