// The copies that synchronise with the host, so far as they have to.
#include "tiers/emulator/copy_plan.h"
#include "tiers/emulator/exported.h"

using namespace frostline::emulator;

namespace {

CopySide host(const void* address) {
    return {reinterpret_cast<std::uintptr_t>(address), 0, Expect::host};
}
CopySide device(CUdeviceptr address) {
    return {address, 0, Expect::device};
}
CopySide any(CUdeviceptr address) {
    return {address, 0, Expect::any};
}

CUresult copy_now(Function& self, CopySide target, CopySide source, std::size_t bytes) {
    return self.call([&](Call& call) -> CUresult {
        CUresult error = CUDA_SUCCESS;
        const auto stream = resolve_stream(call.context, nullptr, error);
        return copy(call, stream, target, source, {bytes, 1}, Waiting::synchronous);
    });
}

CUresult copy_later(Function& self, CopySide target, CopySide source, std::size_t bytes,
                    CUstream handle) {
    return self.call([&](Call& call) -> CUresult {
        CUresult error = CUDA_SUCCESS;
        const auto stream = resolve_stream(call.context, handle, error);
        if (!stream) return error;
        return copy(call, stream, target, source, {bytes, 1}, Waiting::asynchronous);
    });
}

}  // namespace

FROSTLINE_EXPORTED CUresult CUDAAPI cuMemcpy(CUdeviceptr target, CUdeviceptr source,
                                             std::size_t bytes) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return copy_now(self, any(target), any(source), bytes);
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuMemcpyHtoD(CUdeviceptr target, const void* source,
                                                 std::size_t bytes) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return copy_now(self, device(target), host(source), bytes);
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuMemcpyDtoH(void* target, CUdeviceptr source,
                                                 std::size_t bytes) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return copy_now(self, host(target), device(source), bytes);
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuMemcpyDtoD(CUdeviceptr target, CUdeviceptr source,
                                                 std::size_t bytes) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return copy_now(self, device(target), device(source), bytes);
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuMemcpyAsync(CUdeviceptr target, CUdeviceptr source,
                                                  std::size_t bytes, CUstream stream) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return copy_later(self, any(target), any(source), bytes, stream);
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuMemcpyHtoDAsync(CUdeviceptr target, const void* source,
                                                      std::size_t bytes, CUstream stream) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return copy_later(self, device(target), host(source), bytes, stream);
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuMemcpyDtoHAsync(void* target, CUdeviceptr source,
                                                      std::size_t bytes, CUstream stream) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return copy_later(self, host(target), device(source), bytes, stream);
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuMemcpyDtoDAsync(CUdeviceptr target, CUdeviceptr source,
                                                      std::size_t bytes, CUstream stream) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return copy_later(self, device(target), device(source), bytes, stream);
}
