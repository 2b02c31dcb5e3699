// Copies by rows, and copies between devices that are named by their contexts.
#include "tiers/emulator/copy_plan.h"
#include "tiers/emulator/exported.h"

using namespace frostline::emulator;

namespace {

/// One side of a CUDA_MEMCPY2D; false if it is of a kind that is not supported here (arrays).
bool side_of(CUmemorytype type, const void* host, CUdeviceptr device, std::size_t x_bytes,
             std::size_t y, std::size_t pitch, CopySide& side) {
    side.pitch = pitch;
    const std::size_t offset = y * pitch + x_bytes;
    switch (type) {
        case CU_MEMORYTYPE_HOST:
            side.address = reinterpret_cast<std::uintptr_t>(host) + offset;
            side.expect = Expect::host;
            return true;
        case CU_MEMORYTYPE_DEVICE:
            side.address = device + offset;
            side.expect = Expect::device;
            return true;
        case CU_MEMORYTYPE_UNIFIED:
            side.address = device + offset;
            side.expect = Expect::any;
            return true;
        default:
            return false;
    }
}

CUresult copy_rows(Function& self, const CUDA_MEMCPY2D* c, CUstream handle, Waiting waiting) {
    return self.call([&](Call& call) -> CUresult {
        if (c == nullptr) return refuse_value(call, "the description is null");
        CUresult error = CUDA_SUCCESS;
        const auto stream = resolve_stream(call.context, handle, error);
        if (!stream) return error;
        CopySide target;
        CopySide source;
        const bool supported = side_of(c->dstMemoryType, c->dstHost, c->dstDevice, c->dstXInBytes,
                                       c->dstY, c->dstPitch, target) &&
                               side_of(c->srcMemoryType, c->srcHost, c->srcDevice, c->srcXInBytes,
                                       c->srcY, c->srcPitch, source);
        if (!supported) return CUDA_ERROR_NOT_SUPPORTED;
        if (c->Height > 1 && (c->dstPitch < c->dstXInBytes + c->WidthInBytes ||
                              c->srcPitch < c->srcXInBytes + c->WidthInBytes)) {
            return refuse_value(call, "a pitch is smaller than a row");
        }
        return copy(call, stream, target, source, {c->WidthInBytes, c->Height}, waiting);
    });
}

CUresult copy_between(Function& self, CUdeviceptr target, CUcontext target_context,
                      CUdeviceptr source, CUcontext source_context, std::size_t bytes,
                      CUstream handle, Waiting waiting) {
    return self.call([&](Call& call) -> CUresult {
        CUresult error = CUDA_SUCCESS;
        const auto stream = resolve_stream(call.context, handle, error);
        if (!stream) return error;
        const auto& contexts = driver().contexts;
        const auto to = contexts.find(reinterpret_cast<std::uint64_t>(target_context));
        const auto from = contexts.find(reinterpret_cast<std::uint64_t>(source_context));
        if (!to || !from) return refuse("bad-handle", call.function, CUDA_ERROR_INVALID_CONTEXT);
        CopySide target_side{target, 0, Expect::device, to->device};
        CopySide source_side{source, 0, Expect::device, from->device};
        return copy(call, stream, target_side, source_side, {bytes, 1}, waiting);
    });
}

}  // namespace

FROSTLINE_EXPORTED CUresult CUDAAPI cuMemcpy2D(const CUDA_MEMCPY2D* copy) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return copy_rows(self, copy, nullptr, Waiting::synchronous);
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuMemcpy2DUnaligned(const CUDA_MEMCPY2D* copy) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return copy_rows(self, copy, nullptr, Waiting::synchronous);
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuMemcpy2DAsync(const CUDA_MEMCPY2D* copy, CUstream stream) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return copy_rows(self, copy, stream, Waiting::asynchronous);
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuMemcpyPeer(CUdeviceptr target, CUcontext target_context,
                                                 CUdeviceptr source, CUcontext source_context,
                                                 std::size_t bytes) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return copy_between(self, target, target_context, source, source_context, bytes, nullptr,
                        Waiting::synchronous);
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuMemcpyPeerAsync(CUdeviceptr target, CUcontext target_context,
                                                      CUdeviceptr source, CUcontext source_context,
                                                      std::size_t bytes, CUstream stream) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return copy_between(self, target, target_context, source, source_context, bytes, stream,
                        Waiting::asynchronous);
}
