// Functions of the host as operations: what runs them keeps them from calling the driver.
#pragma once

#include <cuda.h>

#include <memory>

#include "tiers/emulator/operation.h"

namespace frostline::emulator {

/// An operation without a stream that calls the function when the device's work has come to it.
std::shared_ptr<Operation> make_host_function(int device, CUhostFn function, void* argument);

}  // namespace frostline::emulator
