// The primary context of each device: one, counted, made by the first that retains it.
#include "tiers/emulator/context_lifetime.h"
#include "tiers/emulator/exported.h"

using namespace frostline::emulator;

FROSTLINE_EXPORTED CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (context == nullptr) return refuse_value(call, "context is null");
        Device* const found = find_device(device);
        if (found == nullptr) return CUDA_ERROR_INVALID_DEVICE;
        if (!found->primary) {
            found->primary = make_context(device, found->primary_flags, true);
        }
        ++found->primary_uses;
        *context = found->primary->handle;
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice device) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::unsafe);
    return self.call([&](Call& call) -> CUresult {
        Device* const found = find_device(device);
        if (found == nullptr) return CUDA_ERROR_INVALID_DEVICE;
        if (found->primary_uses == 0) {
            return refuse("double-release", "the primary context is not retained",
                          CUDA_ERROR_INVALID_CONTEXT);
        }
        if (--found->primary_uses != 0) return CUDA_SUCCESS;
        destroy_context(call.lock, std::exchange(found->primary, nullptr));
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuDevicePrimaryCtxReset(CUdevice device) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::unsafe);
    return self.call([&](Call& call) -> CUresult {
        Device* const found = find_device(device);
        if (found == nullptr) return CUDA_ERROR_INVALID_DEVICE;
        if (!found->primary) return CUDA_SUCCESS;
        found->primary_uses = 0;
        destroy_context(call.lock, std::exchange(found->primary, nullptr));
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags,
                                                               int* active) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (flags == nullptr || active == nullptr) return refuse_value(call, "null argument");
        const Device* const found = find_device(device);
        if (found == nullptr) return CUDA_ERROR_INVALID_DEVICE;
        *flags = found->primary_flags;
        *active = found->primary ? 1 : 0;
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        Device* const found = find_device(device);
        if (found == nullptr) return CUDA_ERROR_INVALID_DEVICE;
        if (!valid_context_flags(flags)) return refuse_value(call, "flags");
        found->primary_flags = flags;
        if (found->primary) found->primary->flags = flags;
        return CUDA_SUCCESS;
    });
}
