// How fast a tier is on this machine, measured through its own interface. Whatever happens, all the
// room that a measurement reserved is given back, and it ends within its time but for the one
// transfer that is under way.
#pragma once

#include "tiers/result.h"
#include "tiers/tier.h"

#include <cstdint>
#include <functional>
#include <span>

namespace frostline {

/// What all the tiers of one machine may take together; each gets an equal share.
inline constexpr std::uint64_t kCalibrationBudgetNs = 1'500'000'000;

struct CalibrationOptions {
    std::uint64_t budget_ns = kCalibrationBudgetNs;  ///< for this tier
    std::uint32_t most_writers = 0;                  ///< 0: as many as there are CPUs
    std::function<std::uint64_t()> now_ns;           ///< empty: the steady clock; any thread
};

struct Calibration {
    TierSpeed speed;
    std::uint64_t sample_bytes = 0;  ///< on how much room it was measured: more is more certain
};

/// On how much of its free room the tier would be measured: a quarter, and 64 MiB at most.
std::uint64_t calibration_sample_bytes(const Tier& tier) noexcept;

/// Measures the tier. Uses 32 MiB of memory at most besides the tier's own. A slow medium is
/// judged by what it moved in the time. Errors: no_space (there is no room to measure on),
/// out_of_memory, the tier's own.
Result<Calibration> calibrate(Tier& tier, const CalibrationOptions& options) noexcept;

/// What `writers` threads together wrote.
struct WriterRate {
    std::uint32_t writers = 1;
    std::uint64_t bytes_per_s = 0;
};

/// The fewest writers that come within 5% of the best. `rates` by ascending writers; 1 if empty.
std::uint32_t fewest_good_writers(std::span<const WriterRate> rates) noexcept;

}  // namespace frostline
