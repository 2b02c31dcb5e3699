// What a program says when it launches a kernel, and the checks that stand between that and an
// operation.
#pragma once

#include <cuda.h>

#include <memory>

#include "tiers/emulator/function.h"
#include "tiers/emulator/kernel_module.h"
#include "tiers/emulator/operation.h"

namespace frostline::emulator {

struct LaunchRequest {
    CUfunction function;
    FrostlineEmulatedLaunch shape;
    std::size_t shared_bytes;
    void** parameters;
    void** extra;
};

/// Whether all blocks can run at the same time, as those of a cooperative launch must.
bool fits_at_once(const LaunchRequest& request) noexcept;

/// The operation of this launch in the context, which is without a stream yet. Errors:
/// CUDA_ERROR_INVALID_HANDLE (no such kernel, or one of another context: reported),
/// CUDA_ERROR_INVALID_VALUE (a shape, size or parameter that is none). The driver's mutex is held.
CUresult make_launch(const Call& call, const LaunchRequest& request,
                     const std::shared_ptr<Context>& context,
                     std::shared_ptr<Operation>& operation);

/// Makes it and submits it to the stream that the handle names in the current context.
CUresult launch(Call& call, const LaunchRequest& request, CUstream stream);

}  // namespace frostline::emulator
