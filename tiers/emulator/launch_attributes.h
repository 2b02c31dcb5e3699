// Which attributes of a launch the emulator takes: those that are hints, or that it can check. What
// it would have to act on and does not is refused by name, never ignored.
#pragma once

#include <cuda.h>

#include <span>

#include "tiers/emulator/kernel_launch.h"

namespace frostline::emulator {

/// Errors: CUDA_ERROR_NOT_SUPPORTED after a line on stderr that names the attribute,
/// CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, CUDA_ERROR_INVALID_CLUSTER_SIZE.
CUresult check_launch_attributes(const LaunchRequest& request,
                                 std::span<const CUlaunchAttribute> attributes);

}  // namespace frostline::emulator
