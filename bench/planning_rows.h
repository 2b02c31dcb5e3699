// Rows of the suite `planner`: how good plans of real traces are, and what planning long ones
// takes.
#pragma once

#include "bench/suite.h"

#include <vector>

namespace frostline::bench {

/// Slowdown of each recorded trace on the device of its machine and on parts of it, down to the
/// least that a kernel needs, against the lower bound. Empty, and says so, without ../shared.
std::vector<Row> plan_quality_rows();

/// Time and memory of planning 1,500, 20,000 and 200,000 kernels, and the exponent of the growth.
/// Peak memory is that of the whole process so far: call it before what takes much.
std::vector<Row> plan_growth_rows();

}  // namespace frostline::bench
