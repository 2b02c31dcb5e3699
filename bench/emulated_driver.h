// The emulated CUDA driver with settings of a suite's own.
#pragma once

#include "tiers/cuda_driver.h"

#include <string>

namespace frostline::bench {

/// Starts it anew, in the words of frostline_emulator_restart(): what used it before is dead.
/// Throws std::runtime_error.
CudaDriver emulated_driver(const std::string& settings);

}  // namespace frostline::bench
