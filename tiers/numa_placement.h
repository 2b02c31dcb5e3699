// On which NUMA nodes memory shall lie, and on which it does lie: what was asked for is one thing,
// what the kernel says of the pages another.
#pragma once

#include "tiers/result.h"
#include "tiers/system_calls.h"
#include "tiers/topology.h"

#include <array>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace frostline {

/// Where the pages of a tier shall lie.
struct NumaPlacement {
    enum class Mode : std::uint8_t {
        none,        ///< near whoever touches them first
        bind,        ///< on these nodes only, the toucher's first
        preferred,   ///< on this one node; elsewhere once it is full
        interleave,  ///< page by page on each of these nodes in turn
    };
    Mode mode = Mode::none;
    std::vector<int> nodes;  ///< the system's ids; with preferred exactly one
};

/// Where pages do lie.
struct Placement {
    std::vector<std::pair<int, std::uint64_t>> bytes_by_node;  ///< ascending, no node without bytes
    std::uint64_t untouched_bytes = 0;                         ///< no memory behind them yet

    std::uint64_t bytes_on(int node) const noexcept;
};

/// A set of nodes as the kernel takes it; as many as it can have.
inline constexpr std::size_t kMaxNodes = 1024;
using NodeMask = std::array<unsigned long, kMaxNodes / (CHAR_BIT * sizeof(unsigned long))>;

/// Whether the machine has what is asked for. Errors: invalid_argument (no such node, or one
/// without memory, named twice, or too many; more bytes than the nodes that alone may hold them
/// have).
Result<void> check_placement(const NumaPlacement& placement, const Topology& topology,
                             std::uint64_t size_bytes);

/// Tells the kernel where the pages of a mapping shall lie that are touched from now on. Errors:
/// what mbind() says (permission in many containers, unsupported).
Result<void> place_memory(const SystemCalls& calls, std::span<std::byte> memory,
                          NumaPlacement::Mode mode, std::span<const int> nodes) noexcept;

/// While it lives, what the calling thread is given comes from one node rather than from others,
/// also from a driver that allocates on its behalf. Only for speed: where the kernel refuses, or
/// the node is kNoNode, everything stays as it is. For use on one thread, as a local.
class PreferredNode {
   public:
    PreferredNode(const SystemCalls& calls, int node) noexcept;
    PreferredNode(const PreferredNode&) = delete;
    PreferredNode& operator=(const PreferredNode&) = delete;
    ~PreferredNode();

   private:
    const SystemCalls& calls_;
    bool changed_ = false;
    int mode_ = 0;
    NodeMask nodes_{};
};

/// Asks the kernel about each page of `memory` and moves none. Costs about a microsecond and then a
/// tenth of one for each page. Errors: what move_pages() says.
Result<Placement> placement_of(const SystemCalls& calls, std::span<const std::byte> memory);

/// Calls `visit` for each run of whole pages of `memory` that lies on none of `nodes`. Looks at a
/// few pages of it, and at all of them only if one of these is misplaced: it makes strays rare, it
/// does not prove that there are none. Memory is whole pages. Errors: what move_pages() says.
Result<void> find_misplaced(const SystemCalls& calls, std::span<std::byte> memory,
                            std::span<const int> nodes,
                            const std::function<void(std::span<std::byte>)>& visit);

/// As "0, 2".
std::string list_of(std::span<const int> nodes);

}  // namespace frostline
