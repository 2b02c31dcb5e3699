// The text of the calibration file. Parsing believes nothing: whatever is missing, of another type
// or out of range makes the whole text corrupt.
#pragma once

#include "tiers/calibration_cache.h"
#include "tiers/result.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace frostline {

/// Errors: corrupt (damaged, or of another version of the format).
Result<std::vector<CachedCalibration>> parse_calibrations(std::string_view text);

std::string format_calibrations(std::span<const CachedCalibration> entries);

}  // namespace frostline
