// What both forms of cuIpcOpenMemHandle have in common.
#pragma once

#include <cuda.h>

#include "tiers/emulator/function.h"

namespace frostline::emulator {

/// Maps the allocation that the handle names at another address, or gives the one at which this
/// context has it open already. Errors: CUDA_ERROR_NOT_SUPPORTED (a handle of another process),
/// CUDA_ERROR_INVALID_HANDLE (the allocation is gone; reported). The driver's mutex is held.
CUresult open_ipc_memory(const Call& call, CUdeviceptr* address, const CUipcMemHandle& handle,
                         unsigned flags);

}  // namespace frostline::emulator
