// What both forms of cuGetProcAddress have in common.
#pragma once

#include <cuda.h>

namespace frostline::emulator {

/// Looks for `symbol` as a program for CUDA `version` means it; `address` becomes null, and
/// `status` says why, if there is none. Errors: CUDA_ERROR_INVALID_VALUE (null pointers, unknown
/// flags, a version newer than the driver). The driver's mutex is held.
CUresult look_up(const char* symbol, void** address, int version, cuuint64_t flags,
                 CUdriverProcAddressQueryResult& status);

}  // namespace frostline::emulator
