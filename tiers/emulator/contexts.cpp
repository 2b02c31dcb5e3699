// Contexts that a program makes itself, and which of them is current to a thread: the top of the
// thread's own stack.
#include "tiers/emulator/context_lifetime.h"
#include "tiers/emulator/exported.h"

using namespace frostline::emulator;

namespace {

CUresult push(CUcontext context) {
    const bool pushed = context_stack().push(reinterpret_cast<std::uint64_t>(context));
    return pushed ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult create(const Call& call, CUcontext* context, unsigned flags, CUdevice device) {
    if (context == nullptr) return refuse_value(call, "context is null");
    if (find_device(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (!valid_context_flags(flags)) return refuse_value(call, "flags");
    const auto made = make_context(device, flags, false);
    *context = made->handle;
    return push(made->handle);
}

CUresult refuse_context(CUcontext context) {
    const auto number = reinterpret_cast<std::uint64_t>(context);
    if (driver().contexts.state(number) == HandleState::destroyed) {
        return refuse("destroyed-handle", fmt::format("context {:#x}", number),
                      CUDA_ERROR_INVALID_CONTEXT);
    }
    return refuse("bad-handle", fmt::format("context {:#x}", number), CUDA_ERROR_INVALID_CONTEXT);
}

std::shared_ptr<Context> find_context(CUcontext context) {
    return driver().contexts.find(reinterpret_cast<std::uint64_t>(context));
}

}  // namespace

// The three forms that programs ask for: of CUDA 3.2, 11.4 and 12.5.
FROSTLINE_EXPORTED CUresult CUDAAPI cuCtxCreate_v2(CUcontext* context, unsigned flags,
                                                   CUdevice device) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::unsafe);
    return self.call([&](Call& call) { return create(call, context, flags, device); });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuCtxCreate_v3(CUcontext* context,
                                                   CUexecAffinityParam* affinity, int affinities,
                                                   unsigned flags, CUdevice device) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::unsafe);
    return self.call([&](Call& call) -> CUresult {
        if (affinity != nullptr || affinities != 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
        return create(call, context, flags, device);
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuCtxCreate_v4(CUcontext* context,
                                                   CUctxCreateParams* parameters, unsigned flags,
                                                   CUdevice device) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::unsafe);
    return self.call([&](Call& call) -> CUresult {
        if (parameters != nullptr &&
            (parameters->numExecAffinityParams != 0 || parameters->cigParams != nullptr)) {
            return CUDA_ERROR_NOT_SUPPORTED;
        }
        return create(call, context, flags, device);
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuCtxDestroy(CUcontext context) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::unsafe);
    return self.call([&](Call& call) -> CUresult {
        const auto found = find_context(context);
        if (!found) return refuse_context(context);
        if (found->primary) {
            return refuse("bad-handle", "a primary context is released and not destroyed",
                          CUDA_ERROR_INVALID_CONTEXT);
        }
        auto& stack = context_stack();
        const auto number = reinterpret_cast<std::uint64_t>(context);
        if (!stack.empty() && stack.back() == number) stack.pop();
        destroy_context(call.lock, found);
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuCtxPushCurrent(CUcontext context) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call&) -> CUresult {
        if (!find_context(context)) return refuse_context(context);
        return push(context);
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuCtxPopCurrent(CUcontext* context) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        auto& stack = context_stack();
        if (stack.empty()) {
            return refuse("no-context", call.function, CUDA_ERROR_INVALID_CONTEXT);
        }
        if (context != nullptr) *context = reinterpret_cast<CUcontext>(stack.back());
        stack.pop();
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuCtxSetCurrent(CUcontext context) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call&) -> CUresult {
        auto& stack = context_stack();
        if (context != nullptr && !find_context(context)) return refuse_context(context);
        if (!stack.empty()) stack.pop();
        return context != nullptr ? push(context) : CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuCtxGetCurrent(CUcontext* context) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (context == nullptr) return refuse_value(call, "context is null");
        const auto& stack = context_stack();
        *context = stack.empty() ? nullptr : reinterpret_cast<CUcontext>(stack.back());
        return CUDA_SUCCESS;
    });
}
