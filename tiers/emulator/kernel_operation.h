// A kernel as an operation of a stream. It runs under the guard, so that what it touches and must
// not becomes a report and an error of its context. What its parameters point into counts as
// touched: that is all that can be known before it runs.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "tiers/emulator/kernel_module.h"
#include "tiers/emulator/kernel_objects.h"
#include "tiers/emulator/operation.h"

namespace frostline::emulator {

/// A launch of a kernel, not submitted yet and without a stream. `packed` holds its parameters
/// (pack_parameters). The driver's mutex is held.
std::shared_ptr<Operation> make_kernel_operation(const std::shared_ptr<KernelHandle>& kernel,
                                                 const FrostlineEmulatedLaunch& shape,
                                                 std::vector<std::byte> packed, int device);

/// Reports unload-under-work and waits if a kernel of the image is queued or running. The driver's
/// mutex is held, and given up meanwhile.
void wait_for_kernels_of(Call& call, const ModuleImage* image);

}  // namespace frostline::emulator
