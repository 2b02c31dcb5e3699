// The rows of the tiers suite that compare the swap tier with fio.
#pragma once

#include "bench/suite.h"

#include <vector>

namespace frostline::bench {

std::vector<Row> swap_rows();

}  // namespace frostline::bench
