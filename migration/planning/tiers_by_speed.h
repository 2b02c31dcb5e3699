// Which TierId each tier of a machine has for a policy: the device is 0, and then come the tiers
// that fill it fastest.
#pragma once

#include "migration/planning/machine.h"
#include "tiers/result.h"

#include <vector>

namespace frostline {

/// The machine's tiers by TierId. Of tiers as fast as each other the one listed first comes first,
/// and last what does not reach the device at all. Errors: invalid_argument (more tiers than a
/// manager can have). May throw std::bad_alloc.
Result<std::vector<TierIndex>> tiers_by_speed(const Machine& machine);

}  // namespace frostline
