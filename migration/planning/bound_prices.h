// The bound that follows from prices: of a byte that crosses a cut between tiers in a phase, and of
// a byte of room at a point. docs/planner.md proves it.
//
// Rule: whatever the prices are (none is negative), the value is a bound. Nothing here searches.
#pragma once

#include "migration/planning/range_minimum.h"
#include "migration/planning/tensor_versions.h"

#include <cstdint>
#include <span>
#include <vector>

namespace frostline {

/// Some tiers, the device among them, against all others.
struct TierCut {
    std::uint64_t room_bytes = 0;  ///< of those tiers together
    double in_bytes_per_ns = 0;    ///< what all links into them carry together, at most
    double out_bytes_per_ns = 0;
};

/// Prices of one cut in nanoseconds per byte, by phase or point of one step.
struct CutPrices {
    std::vector<double> in;
    std::vector<double> out;
    std::vector<double> room;

    explicit CutPrices(std::uint32_t points) : in(points), out(points), room(points) {}
};

/// What a step's bytes pay for one cut at least, less the price of the room that there is.
struct CutValue {
    double repeating_ns = 0;  ///< a step of a schedule that repeats itself
    double judged_ns = 0;     ///< the mean of four steps with free ends; not above repeating_ns
};

/// What the cheapest plans use in a step of four with free ends; this is what a search follows.
struct CutUse {
    std::vector<double> in_bytes;    ///< by phase
    std::vector<double> out_bytes;   ///< by phase
    std::vector<double> room_bytes;  ///< by point, without what kernels use then
};

/// Computes values for one cut. The trace's versions outlive it. Not thread-safe.
class CutPricing {
   public:
    CutPricing(const TensorVersions& versions, const TierCut& cut)
        : versions_(versions), cut_(cut) {}

    /// May throw std::bad_alloc. `use` may be null. O(intervals).
    CutValue value(const CutPrices& prices, CutUse* use = nullptr);

   private:
    /// A phase, and what it costs to use it.
    struct Choice {
        std::uint32_t phase = 0;
        double cost_ns = 0;
    };

    void tabulate(const CutPrices& prices);
    double stay_ns(const UseInterval& interval) const {
        return room_before_[interval.end] - room_before_[interval.begin];
    }
    Choice cheapest_return(const UseInterval& interval) const;
    Choice cheapest_leave(const UseInterval& interval) const;
    Choice cheapest_copy(const UseInterval& interval) const;

    double with_copy_ns(const UseInterval& interval, double bytes);
    double with_copy_ns(std::span<const UseInterval> intervals, double bytes);
    double without_copy_ns(std::span<const UseInterval> intervals, double bytes);
    double wrapping_ns(const TensorVersion& version, std::span<const UseInterval> intervals);

    void note_stay(std::uint32_t begin, std::uint32_t end, double bytes);
    void note_in(std::uint32_t phase, double bytes);
    void note_out(std::uint32_t phase, double bytes);
    void sum_up(CutUse& use) const;

    const TensorVersions& versions_;
    TierCut cut_;
    CutUse* use_ = nullptr;
    std::vector<double> room_change_;
    // Over two steps, because versions of weights go on into the next.
    std::vector<double> room_before_;   ///< the prices of room at all earlier points, summed
    std::vector<double> in_less_room_;  ///< in[p] - room_before_[p]
    std::vector<double> out_;
    std::vector<double> out_and_room_;  ///< out[p] + room_before_[p]
    RangeMinimum least_in_less_room_;
    RangeMinimum least_out_;
    RangeMinimum least_out_and_room_;
    std::vector<double> later_ns_;  ///< of one version's intervals once it has a copy
};

}  // namespace frostline
