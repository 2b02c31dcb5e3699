// Launches in all their forms come down to one: everything is checked and copied at the call, and
// then one operation is submitted.
#include <cuda.h>
#include <fmt/format.h>

#include <span>

#include "tiers/emulator/exported.h"
#include "tiers/emulator/kernel_launch.h"
#include "tiers/emulator/launch_attributes.h"

using namespace frostline::emulator;

FROSTLINE_EXPORTED CUresult CUDAAPI cuLaunchKernel(CUfunction f, unsigned grid_x, unsigned grid_y,
                                                   unsigned grid_z, unsigned block_x,
                                                   unsigned block_y, unsigned block_z,
                                                   unsigned shared_bytes, CUstream stream,
                                                   void** parameters, void** extra) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call& call) {
        return launch(call,
                      {f,
                       {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}},
                       shared_bytes,
                       parameters,
                       extra},
                      stream);
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuLaunchCooperativeKernel(
    CUfunction f, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
    unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void** parameters) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        const LaunchRequest request{f,
                                    {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}},
                                    shared_bytes,
                                    parameters,
                                    nullptr};
        if (!fits_at_once(request)) return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
        return launch(call, request, stream);
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f,
                                                     void** parameters, void** extra) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (config == nullptr || (config->numAttrs > 0 && config->attrs == nullptr)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        const LaunchRequest request{f,
                                    {{config->gridDimX, config->gridDimY, config->gridDimZ},
                                     {config->blockDimX, config->blockDimY, config->blockDimZ}},
                                    config->sharedMemBytes,
                                    parameters,
                                    extra};
        const CUresult allowed =
            check_launch_attributes(request, {config->attrs, config->numAttrs});
        if (allowed != CUDA_SUCCESS) return allowed;
        return launch(call, request, config->hStream);
    });
}
