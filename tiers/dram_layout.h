// How the address space of a DRAM tier is cut into arenas: first the home arenas, which are no
// larger than what may become resident in them, then one that takes what fits in none of these.
// That one is larger than the budget, so that fragmentation does not refuse what the budget allows.
#pragma once

#include "tiers/numa_placement.h"
#include "tiers/result.h"
#include "tiers/system_calls.h"
#include "tiers/topology.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace frostline {

/// One arena to be.
struct ArenaPlan {
    std::uint64_t size_bytes = 0;  ///< whole pages
    std::vector<int> nodes;        ///< where its pages are to lie; empty: anywhere
    bool pinned = false;
};

/// The home arenas of a budget, none in the simplest case: one for each of several nodes that
/// memory is bound to, with a share of the budget as large as the node's share of their memory (a
/// node that is strictly bound and full ends the process); or one that is pinned (it stays resident
/// where it is in pieces). `topology` may be nullptr where `numa` names no nodes. May throw
/// std::bad_alloc.
std::vector<ArenaPlan> plan_home_arenas(const NumaPlacement& numa, const Topology* topology,
                                        std::uint64_t capacity_bytes, bool pinned);

/// Reserved address space without memory, unmapped at its end.
class DramMapping {
   public:
    DramMapping() = default;
    DramMapping(DramMapping&& other) noexcept { *this = std::move(other); }
    DramMapping& operator=(DramMapping&& other) noexcept {
        std::swap(mapped_, other.mapped_);
        std::swap(calls_, other.calls_);
        return *this;
    }
    ~DramMapping();

    /// Room for the home arenas and the last one, which is up to four times the budget; less on a
    /// system that counts address space. Sets the last plan's size. Errors: what mmap() says.
    static Result<DramMapping> create(const SystemCalls& calls, std::uint64_t capacity_bytes,
                                      std::vector<ArenaPlan>& plans) noexcept;

    std::span<std::byte> whole() const noexcept { return mapped_; }
    /// The memory of each plan in turn; each starts at a huge page.
    std::span<std::byte> next(std::uint64_t& position, const ArenaPlan& plan) const noexcept;

   private:
    std::span<std::byte> mapped_;
    const SystemCalls* calls_ = nullptr;
};

}  // namespace frostline
