// Random small traces, machines and legal schedules. What makes the schedules keeps its own books,
// part by part, and shares nothing with the replay that they test.
#pragma once

#include "tests/migration/planning/replay_case.h"

#include <random>

namespace frostline {

/// A legal case: 2 to 7 tensors and kernels, and now and then ten times as many, 3 to 5 steps, 2 to
/// 4 tiers, just enough device memory or a little more, copies that overlap kernels and each other.
ReplayCase make_legal_case(std::mt19937_64& random);

/// One random change, after which the case may be legal or not.
void change_case(ReplayCase& each, std::mt19937_64& random);

}  // namespace frostline
