// cuInit: the settings take effect here, or the call fails with one line that says why.
#include <cstdio>

#include "tiers/emulator/exported.h"

using namespace frostline::emulator;

FROSTLINE_EXPORTED CUresult CUDAAPI cuInit(unsigned flags) {
    static Function& self = Function::named(__func__, Needs::nothing, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (flags != 0) return refuse_value(call, "flags have to be 0");
        const Driver& d = driver();
        if (!d.settings_error.empty()) {
            std::fprintf(stderr, "frostline emulator: %s\n", d.settings_error.c_str());
            return CUDA_ERROR_INVALID_VALUE;
        }
        initialise();
        return d.devices.empty() ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
    });
}
