// What must cross a cut between tiers while a row of kernels runs, if bytes are kept as cleverly as
// can be: furthest next use leaves first.
//
// Rule: a sweep only proposes. Prices that it suggests are proved by bound_prices.h, where an
// overestimate of a sweep would come to nothing.
#pragma once

#include "migration/planning/bound_prices.h"
#include "migration/planning/tensor_versions.h"

#include <cstdint>
#include <queue>
#include <span>
#include <utility>
#include <vector>

namespace frostline {

enum class Direction : std::uint8_t { in, out };

/// Sweeps over the kernels of a cyclic step; kernel indices go on counting after its end. What it
/// is made of outlives it. Not thread-safe. Budget of a sweep: O(uses log kernels).
class TrafficSweep {
   public:
    /// May throw std::bad_alloc.
    TrafficSweep(const TensorVersions& versions, const TierCut& cut);

    /// The bytes that cross up to the start of kernel first + i, for each i < `kernels` (at most a
    /// step and one), when all before is free: for `in` from the end of the kernel before `first`
    /// on, for `out` what is born in `first` and later. Valid until the next sweep.
    /// May throw std::bad_alloc.
    std::span<const double> sweep(Direction direction, std::uint32_t first, std::uint32_t kernels);

    /// Kernels, the last first, at whose ends room is what the last sweep lacked: every range that
    /// it gave up spans one of them, and none that it kept spans two. The first may be the one
    /// before `first`.
    std::vector<std::uint32_t> tight_kernels() const;

   private:
    /// Where bytes were given up, and the nearest of the uses for which they had been kept.
    struct Loss {
        std::uint32_t kernel = 0;
        std::uint32_t until = 0;
    };
    struct Span {
        std::uint32_t from = 0;    ///< the kernel that uses the tensor before, within one step
        std::uint32_t length = 0;  ///< kernels to the next use
        std::uint32_t version = 0;
        bool opens = false;         ///< the version's first, and there is no copy yet
        bool is_born_read = false;  ///< can be copied while the kernel before runs
    };

    std::uint32_t kernels() const { return versions_.points / 2; }
    double room_beside(std::uint32_t kernel) const;
    std::span<const Span> spans_from(std::uint32_t kernel) const;
    void sweep_in(std::uint32_t first, std::uint32_t kernels);
    void sweep_out(std::uint32_t first, std::uint32_t kernels);
    void keep(std::uint32_t until, double bytes);

    const TensorVersions& versions_;
    TierCut cut_;
    std::vector<Span> spans_;  ///< by `from`
    std::vector<std::uint32_t> first_span_;
    std::vector<std::uint32_t> lifetime_;  ///< by version: kernels from its write to its end

    Direction direction_ = Direction::in;
    std::uint32_t first_ = 0;
    std::vector<double> crossed_;
    std::vector<Loss> losses_;        ///< kernels counted from the one before the first
    std::vector<double> kept_until_;  ///< sweeping in: bytes, by the kernel that uses them next
    std::vector<double> missing_at_;
    std::priority_queue<std::uint32_t> ends_;
    std::vector<double> kept_;  ///< sweeping out: bytes, by version
    std::vector<std::uint32_t> end_;
};

}  // namespace frostline
