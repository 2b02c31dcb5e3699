// Shares of nodes, and one mapping for all arenas.
#include "tiers/dram_layout.h"

#include "tiers/dram_arena.h"
#include "tiers/page.h"

#include <sys/mman.h>

#include <cerrno>

namespace frostline {
namespace {

// Costs nothing until it is touched.
constexpr std::uint64_t kAddressesOverCapacity = 4;

constexpr std::uint64_t round_up_to_huge_page(std::uint64_t size_bytes) noexcept {
    return (size_bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
}

}  // namespace

std::vector<ArenaPlan> plan_home_arenas(const NumaPlacement& numa, const Topology* topology,
                                        std::uint64_t capacity_bytes, bool pinned) {
    std::vector<ArenaPlan> plans;
    if (numa.mode != NumaPlacement::Mode::bind || numa.nodes.size() == 1) {
        if (pinned) plans.push_back({capacity_bytes, numa.nodes, pinned});
        return plans;
    }
    double memory_bytes = 0;
    for (const int node : numa.nodes) {
        memory_bytes += static_cast<double>(topology->node(node)->memory_bytes);
    }
    for (const int node : numa.nodes) {
        const double part = static_cast<double>(topology->node(node)->memory_bytes) / memory_bytes;
        const auto share = static_cast<std::uint64_t>(static_cast<double>(capacity_bytes) * part);
        if (share < kPageBytes) continue;
        plans.push_back({share / kPageBytes * kPageBytes, {node}, pinned});
    }
    return plans;
}

DramMapping::~DramMapping() {
    if (!mapped_.empty()) (void)calls_->munmap(mapped_.data(), mapped_.size());
}

Result<DramMapping> DramMapping::create(const SystemCalls& calls, std::uint64_t capacity_bytes,
                                        std::vector<ArenaPlan>& plans) noexcept {
    std::uint64_t homes_bytes = kHugePageBytes;  // so that the first can start at one
    for (const ArenaPlan& each : plans) homes_bytes += round_up_to_huge_page(each.size_bytes);
    int error = ENOMEM;
    for (std::uint64_t times = kAddressesOverCapacity; times > 0; times /= 2) {
        if (capacity_bytes > UINT64_MAX / 4 / times) continue;
        plans.back().size_bytes = capacity_bytes * times;
        const std::uint64_t size_bytes = homes_bytes + capacity_bytes * times;
        void* const memory = calls.mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory != MAP_FAILED) {
            DramMapping mapping;
            mapping.mapped_ = {static_cast<std::byte*>(memory), size_bytes};
            mapping.calls_ = &calls;
            return mapping;
        }
        error = errno;
    }
    return system_error(error,
                        "DRAM tier: cannot reserve {} bytes of address space; lower the DRAM "
                        "budget",
                        capacity_bytes);
}

std::span<std::byte> DramMapping::next(std::uint64_t& position,
                                       const ArenaPlan& plan) const noexcept {
    const auto start = reinterpret_cast<std::uint64_t>(mapped_.data());
    position = round_up_to_huge_page(start + position) - start;
    const auto memory = mapped_.subspan(position, plan.size_bytes);
    position += plan.size_bytes;
    return memory;
}

}  // namespace frostline
