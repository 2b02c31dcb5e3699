// Earlier forms of functions that still exist under their first names, for programs that were
// written for an older CUDA. Each does what the current form does with what it can say. The define
// makes cuda.h declare all forms, and rename none.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): cuda.h's own name
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include "tiers/emulator/entry_points.h"
#include "tiers/emulator/exported.h"
#include "tiers/emulator/graphs.h"
#include "tiers/emulator/ipc.h"
#include "tiers/emulator/stream_capture.h"

using namespace frostline::emulator;

// The form of CUDA 11.3: a name that is not found is an error.
FROSTLINE_EXPORTED CUresult CUDAAPI cuGetProcAddress(const char* symbol, void** address,
                                                     int version, cuuint64_t flags) {
    static Function& self = Function::named(__func__, Needs::nothing, InCapture::allowed);
    return self.call([&](Call&) -> CUresult {
        CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
        const CUresult result = look_up(symbol, address, version, flags, status);
        if (result != CUDA_SUCCESS) return result;
        return status == CU_GET_PROC_ADDRESS_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuStreamBeginCapture(CUstream stream) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call(
        [&](Call& call) { return begin_capture_on(call, stream, CU_STREAM_CAPTURE_MODE_GLOBAL); });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuStreamGetCaptureInfo(CUstream stream,
                                                           CUstreamCaptureStatus* status,
                                                           cuuint64_t* id) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call& call) { return query_capture(call, stream, {status, id}); });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuStreamGetCaptureInfo_v2(CUstream stream,
                                                              CUstreamCaptureStatus* status,
                                                              cuuint64_t* id, CUgraph* graph,
                                                              const CUgraphNode** dependencies,
                                                              size_t* count) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call& call) {
        return query_capture(call, stream, {status, id, graph, dependencies, nullptr, count});
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuStreamUpdateCaptureDependencies(CUstream stream,
                                                                      CUgraphNode* dependencies,
                                                                      size_t count,
                                                                      unsigned flags) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call(
        [&](Call& call) { return update_dependencies(call, stream, dependencies, count, flags); });
}

// Nothing can go wrong with a single node, so there is neither a node nor a log to tell of.
FROSTLINE_EXPORTED CUresult CUDAAPI cuGraphInstantiate(CUgraphExec* exec, CUgraph graph,
                                                       CUgraphNode* error_node, char* log,
                                                       size_t log_bytes) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (error_node != nullptr) *error_node = nullptr;
        if (log != nullptr && log_bytes > 0) *log = '\0';
        return instantiate_graph(call, exec, graph, 0);
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuGraphInstantiate_v2(CUgraphExec* exec, CUgraph graph,
                                                          CUgraphNode* error_node, char* log,
                                                          size_t log_bytes) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (error_node != nullptr) *error_node = nullptr;
        if (log != nullptr && log_bytes > 0) *log = '\0';
        return instantiate_graph(call, exec, graph, 0);
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle,
                                                       unsigned flags) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::unsafe);
    return self.call([&](Call& call) { return open_ipc_memory(call, address, handle, flags); });
}
