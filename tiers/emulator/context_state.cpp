// What the current context is and what it is set to, and waiting for all of its work.
#include "tiers/emulator/exported.h"

using namespace frostline::emulator;

FROSTLINE_EXPORTED CUresult CUDAAPI cuCtxGetDevice(CUdevice* device) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (device == nullptr) return refuse_value(call, "device is null");
        *device = call.context->device;
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuCtxGetFlags(unsigned* flags) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (flags == nullptr) return refuse_value(call, "flags is null");
        *flags = call.context->flags;
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuCtxGetId(CUcontext context, unsigned long long* id) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (id == nullptr) return refuse_value(call, "id is null");
        const auto number = reinterpret_cast<std::uint64_t>(context);
        const auto found = context == nullptr ? call.context : driver().contexts.find(number);
        if (!found) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
        *id = found->id;
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuCtxGetApiVersion(CUcontext context, unsigned* version) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (version == nullptr) return refuse_value(call, "version is null");
        const auto number = reinterpret_cast<std::uint64_t>(context);
        const auto found = context == nullptr ? call.context : driver().contexts.find(number);
        if (!found) return CUDA_ERROR_INVALID_CONTEXT;
        *version = 3020;
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuCtxSynchronize() {
    static Function& self = Function::named(__func__, Needs::context, InCapture::unsafe);
    return self.call([&](Call& call) -> CUresult {
        wait_context(call.lock, call.context);
        return call.context->sticky;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuCtxGetStreamPriorityRange(int* least, int* greatest) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call&) -> CUresult {
        if (least != nullptr) *least = 0;
        if (greatest != nullptr) *greatest = -5;
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuCtxGetLimit(std::size_t* value, CUlimit limit) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (value == nullptr) return refuse_value(call, "value is null");
        const auto found = call.context->limits.find(limit);
        if (found == call.context->limits.end()) return CUDA_ERROR_UNSUPPORTED_LIMIT;
        *value = found->second;
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuCtxSetLimit(CUlimit limit, std::size_t value) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        const auto found = call.context->limits.find(limit);
        if (found == call.context->limits.end()) return CUDA_ERROR_UNSUPPORTED_LIMIT;
        found->second = value;
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::unsafe);
    return self.call([&](Call& call) -> CUresult {
        if (flags != 0) return refuse_value(call, "flags have to be 0");
        const auto found = driver().contexts.find(reinterpret_cast<std::uint64_t>(peer));
        if (!found) return refuse("bad-handle", "peer context", CUDA_ERROR_INVALID_CONTEXT);
        if (!driver().settings.peer || found->device == call.context->device) {
            return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
        }
        const bool added = call.context->peers.insert(found->device).second;
        return added ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuCtxDisablePeerAccess(CUcontext peer) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::unsafe);
    return self.call([&](Call& call) -> CUresult {
        const auto found = driver().contexts.find(reinterpret_cast<std::uint64_t>(peer));
        if (!found) return refuse("bad-handle", "peer context", CUDA_ERROR_INVALID_CONTEXT);
        wait_context(call.lock, call.context);
        const bool removed = call.context->peers.erase(found->device) != 0;
        return removed ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    });
}
