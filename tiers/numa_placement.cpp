// mbind() before pages are touched; move_pages() without a target, which only asks.
#include "tiers/numa_placement.h"

#include "tiers/page.h"

#include <fmt/format.h>
#include <numaif.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <map>

namespace frostline {
namespace {

constexpr std::size_t kBitsPerWord = CHAR_BIT * sizeof(unsigned long);
constexpr unsigned long kMaskBits = kMaxNodes + 1;  // the kernel takes one less than it is told

constexpr std::uint64_t kPagesPerQuestion = 256;
constexpr std::uint64_t kSamples = 4;

using Statuses = std::array<int, kPagesPerQuestion>;

NodeMask mask_of(std::span<const int> nodes) noexcept {
    NodeMask mask{};
    for (const int each : nodes) {
        const auto node = static_cast<std::size_t>(each);
        mask[node / kBitsPerWord] |= 1UL << node % kBitsPerWord;
    }
    return mask;
}

// The node of `count` pages that lie `step_bytes` apart, or -errno where there is no memory.
Result<void> ask(const SystemCalls& calls, std::uint64_t first, std::uint64_t step_bytes,
                 std::uint64_t count, Statuses& statuses) noexcept {
    std::array<void*, kPagesPerQuestion> pages{};
    for (std::uint64_t i = 0; i < count; ++i) {
        pages[i] = reinterpret_cast<void*>(first + i * step_bytes);
    }
    constexpr int kThisProcess = 0;
    const long done =
        calls.move_pages(kThisProcess, count, pages.data(), nullptr, statuses.data(), 0);
    if (done != 0) return system_error(errno, "cannot ask on which NUMA nodes pages lie");
    return ok();
}

// Calls visit(address of the page, its node or -errno) for every page that has some of `memory`.
template <class Visit>
Result<void> for_each_page(const SystemCalls& calls, std::span<const std::byte> memory,
                           Visit&& visit) {
    const auto start = reinterpret_cast<std::uint64_t>(memory.data());
    const std::uint64_t end = start + memory.size();
    Statuses statuses{};
    for (std::uint64_t at = start / kPageBytes * kPageBytes; at < end;) {
        const std::uint64_t left = (end - at + kPageBytes - 1) / kPageBytes;
        const std::uint64_t count = std::min(left, kPagesPerQuestion);
        FROSTLINE_TRY_VOID(ask(calls, at, kPageBytes, count, statuses));
        for (std::uint64_t i = 0; i < count; ++i) visit(at + i * kPageBytes, statuses[i]);
        at += count * kPageBytes;
    }
    return ok();
}

bool misplaced(int node, std::span<const int> nodes) {
    return node >= 0 && std::find(nodes.begin(), nodes.end(), node) == nodes.end();
}

Error no_such_node(int node, const Topology& topology) {
    std::vector<int> usable;
    for (const NumaNode& each : topology.nodes()) {
        if (each.memory_bytes > 0) usable.push_back(each.id);
    }
    return Error(Errc::invalid_argument, 0,
                 "this machine has no NUMA node {} with memory for this process; it has: {}", node,
                 list_of(usable));
}

}  // namespace

std::uint64_t Placement::bytes_on(int node) const noexcept {
    for (const auto& [each, bytes] : bytes_by_node) {
        if (each == node) return bytes;
    }
    return 0;
}

Result<void> check_placement(const NumaPlacement& placement, const Topology& topology,
                             std::uint64_t size_bytes) {
    using Mode = NumaPlacement::Mode;
    const std::vector<int>& nodes = placement.nodes;
    if (placement.mode == Mode::none && nodes.empty()) return ok();
    const bool one = placement.mode == Mode::preferred;
    if (placement.mode == Mode::none || nodes.empty() || (one && nodes.size() > 1)) {
        return Error(Errc::invalid_argument, 0, "a placement of memory {} NUMA nodes: name {}",
                     nodes.empty() ? "names no" : "names too many",
                     placement.mode == Mode::none ? "a mode, or no nodes"
                     : one                        ? "the one that is preferred"
                                                  : "at least one");
    }
    std::uint64_t memory_bytes = 0;
    for (auto each = nodes.begin(); each != nodes.end(); ++each) {
        const NumaNode* const node = topology.node(*each);
        const bool known = node != nullptr && node->memory_bytes > 0;
        if (!known || static_cast<std::size_t>(*each) >= kMaxNodes) {
            return no_such_node(*each, topology);
        }
        if (std::find(nodes.begin(), each, *each) != each) {
            return Error(Errc::invalid_argument, 0, "NUMA node {} is named twice", *each);
        }
        memory_bytes += node->memory_bytes;
    }
    // The kernel would not refuse: it would end the process once the nodes are full.
    if (placement.mode == Mode::bind && size_bytes > memory_bytes) {
        return Error(Errc::invalid_argument, 0,
                     "a budget of {} bytes is bound to NUMA nodes {}, which have {} bytes; lower "
                     "it, or name more nodes",
                     size_bytes, list_of(nodes), memory_bytes);
    }
    return ok();
}

Result<void> place_memory(const SystemCalls& calls, std::span<std::byte> memory,
                          NumaPlacement::Mode mode, std::span<const int> nodes) noexcept {
    constexpr std::array<int, 4> kPolicies{MPOL_DEFAULT, MPOL_BIND, MPOL_PREFERRED,
                                           MPOL_INTERLEAVE};
    const NodeMask mask = mask_of(nodes);
    const bool any = mode != NumaPlacement::Mode::none;
    if (calls.mbind(memory.data(), memory.size(), kPolicies[static_cast<std::size_t>(mode)],
                    any ? mask.data() : nullptr, any ? kMaskBits : 0, 0) != 0) {
        return system_error(errno, "memory cannot be placed on NUMA nodes");
    }
    return ok();
}

PreferredNode::PreferredNode(const SystemCalls& calls, int node) noexcept : calls_(calls) {
    if (node == kNoNode) return;
    if (calls_.get_mempolicy(&mode_, nodes_.data(), kMaskBits - 1, nullptr, 0) != 0) return;
    const NodeMask mask = mask_of({&node, 1});
    changed_ = calls_.set_mempolicy(MPOL_PREFERRED, mask.data(), kMaskBits) == 0;
}

// What the thread had it may have again: nothing that the kernel said can be refused.
PreferredNode::~PreferredNode() {
    if (changed_) (void)calls_.set_mempolicy(mode_, nodes_.data(), kMaskBits);
}

Result<Placement> placement_of(const SystemCalls& calls, std::span<const std::byte> memory) {
    const auto start = reinterpret_cast<std::uint64_t>(memory.data());
    const std::uint64_t end = start + memory.size();
    std::map<int, std::uint64_t> by_node;
    Placement placement;
    FROSTLINE_TRY_VOID(for_each_page(calls, memory, [&](std::uint64_t page, int node) {
        const std::uint64_t bytes = std::min(page + kPageBytes, end) - std::max(page, start);
        (node >= 0 ? by_node[node] : placement.untouched_bytes) += bytes;
    }));
    placement.bytes_by_node.assign(by_node.begin(), by_node.end());
    return placement;
}

Result<void> find_misplaced(const SystemCalls& calls, std::span<std::byte> memory,
                            std::span<const int> nodes,
                            const std::function<void(std::span<std::byte>)>& visit) {
    const std::uint64_t pages = memory.size() / kPageBytes;
    const std::uint64_t samples = std::min(pages, kSamples);
    if (samples == 0) return ok();
    const std::uint64_t step = samples == 1 ? 0 : (pages - 1) / (samples - 1) * kPageBytes;
    Statuses statuses{};
    FROSTLINE_TRY_VOID(
        ask(calls, reinterpret_cast<std::uint64_t>(memory.data()), step, samples, statuses));
    if (std::none_of(statuses.begin(), statuses.begin() + static_cast<std::ptrdiff_t>(samples),
                     [&](int node) { return misplaced(node, nodes); })) {
        return ok();
    }
    std::span<std::byte> run;
    FROSTLINE_TRY_VOID(for_each_page(calls, memory, [&](std::uint64_t page, int node) {
        if (!misplaced(node, nodes)) return;
        auto* const address = reinterpret_cast<std::byte*>(page);
        if (run.data() + run.size() == address) {
            run = {run.data(), run.size() + kPageBytes};
            return;
        }
        if (!run.empty()) visit(run);
        run = {address, kPageBytes};
    }));
    if (!run.empty()) visit(run);
    return ok();
}

std::string list_of(std::span<const int> nodes) {
    return fmt::format("{}", fmt::join(nodes.begin(), nodes.end(), ", "));
}

}  // namespace frostline
