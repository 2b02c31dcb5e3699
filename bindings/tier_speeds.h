// Where the speeds of a manager's tiers come from: the user's cache, or a measurement here and now.
// Never a reason to fail: a tier without a known speed is used in its place of the order.
#pragma once

#include "tiers/result.h"
#include "tiers/tier.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace frostline {

enum class SpeedSource : std::uint8_t {
    cache_or_measurement,  ///< measured where the cache does not know
    measurement,           ///< measured in any case, and the cache is told
    cache,                 ///< nothing is measured
    none,                  ///< all speeds stay 0
};

/// What the environment variable FROSTLINE_CALIBRATION asks for: `off`, `now`, or, if it is not set
/// or empty, the default. Errors: invalid_argument (anything else).
Result<SpeedSource> speed_source_from_environment();

/// How one tier's speed came to be known.
struct SpeedOrigin {
    std::int64_t measured_at_s = 0;  ///< since 1970; 0: the speed is not known
    bool cached = false;
    std::string problem;  ///< why it is not known; empty if it is
};

struct SpeedReport {
    std::vector<SpeedOrigin> tiers;  ///< in the order given
    std::string cache_path;          ///< empty: there is no place for one
    std::string cache_problem;       ///< why the cache was of no use; empty if it was
    std::uint64_t measuring_ns = 0;
};

struct TierToRate {
    Tier* tier = nullptr;
    SpeedSource source{};
};

/// Tells every tier its speed. Nobody else uses the tiers meanwhile. Throws std::bad_alloc only.
SpeedReport find_speeds(std::span<const TierToRate> tiers);

}  // namespace frostline
