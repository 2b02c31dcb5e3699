// The cuts of a machine across which a step's bytes can be forced to move.
//
// Rule: a cut's speeds are never below what the links across it can carry together under the
// judge's rules, its rounding slack included.
#pragma once

#include "migration/planning/bound_prices.h"
#include "migration/planning/machine.h"

#include <cstdint>
#include <vector>

namespace frostline {

/// Sets of tiers, the device in each, that have less room than `live_bytes`; the smallest first.
/// May throw std::bad_alloc.
std::vector<TierCut> tier_cuts(const Machine& machine, std::uint64_t live_bytes);

}  // namespace frostline
