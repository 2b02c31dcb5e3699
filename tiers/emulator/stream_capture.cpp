// The driver's functions on stream capture. The queries are allowed on any stream at any time, but
// for the legacy one while a stream that it would synchronise with is captured.
#include "tiers/emulator/stream_capture.h"

#include <cuda.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tiers/emulator/capture_graph.h"
#include "tiers/emulator/exported.h"
#include "tiers/emulator/graph.h"
#include "tiers/emulator/kernel_objects.h"

namespace frostline::emulator {
namespace {

// Null where `error` says what to return.
std::shared_ptr<Stream> resolve_queried(const Call& call, CUstream handle, CUresult& error) {
    auto stream = resolve_stream(call.context, handle, error);
    if (stream != nullptr && stream->legacy && blocking_stream_is_captured(*call.context)) {
        error = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        return nullptr;
    }
    return stream;
}

CUstreamCaptureStatus status_of(const Stream& stream) {
    if (stream.capture == nullptr) return CU_STREAM_CAPTURE_STATUS_NONE;
    return stream.capture->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                       : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

bool is_mode(CUstreamCaptureMode mode) {
    return mode == CU_STREAM_CAPTURE_MODE_GLOBAL || mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL ||
           mode == CU_STREAM_CAPTURE_MODE_RELAXED;
}

void set_dependencies(CaptureGraph::Branch& branch, GraphNodes nodes, bool replace) {
    if (replace) branch.last.clear();
    for (auto& node : nodes) {
        if (std::find(branch.last.begin(), branch.last.end(), node) == branch.last.end()) {
            branch.last.push_back(std::move(node));
        }
    }
}

}  // namespace

CUresult query_capture(const Call& call, CUstream handle, const CaptureQuery& query) {
    if (query.status == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUresult error = CUDA_SUCCESS;
    const auto stream = resolve_queried(call, handle, error);
    if (stream == nullptr) return error;
    *query.status = status_of(*stream);
    if (*query.status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
    CaptureGraph& captured = graph_of(*stream->capture);
    captured.last_asked.clear();
    for (const auto& node : captured.branches.at(stream.get()).last) {
        captured.last_asked.push_back(handle_of<CUgraphNode>(node->handle));
    }
    if (query.id != nullptr) *query.id = captured.id;
    if (query.graph != nullptr) *query.graph = handle_of<CUgraph>(captured.graph->handle);
    if (query.dependencies != nullptr) *query.dependencies = captured.last_asked.data();
    // No edge here has data; null says so.
    if (query.edges != nullptr) *query.edges = nullptr;
    if (query.count != nullptr) *query.count = captured.last_asked.size();
    return CUDA_SUCCESS;
}

CUresult update_dependencies(const Call& call, CUstream handle, const CUgraphNode* dependencies,
                             std::size_t count, unsigned flags) {
    if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES) return CUDA_ERROR_INVALID_VALUE;
    CUresult error = CUDA_SUCCESS;
    const auto stream = resolve_stream(call.context, handle, error);
    if (stream == nullptr) return error;
    if (stream->capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
    CaptureGraph& captured = graph_of(*stream->capture);
    GraphNodes nodes;
    if (!resolve_nodes(*captured.graph, dependencies, count, nodes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    set_dependencies(captured.branches.at(stream.get()), std::move(nodes),
                     flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES);
    return CUDA_SUCCESS;
}

CUresult begin_capture_on(const Call& call, CUstream handle, CUstreamCaptureMode mode) {
    if (!is_mode(mode)) return CUDA_ERROR_INVALID_VALUE;
    CUresult error = CUDA_SUCCESS;
    const auto stream = resolve_stream(call.context, handle, error);
    if (stream == nullptr) return error;
    return begin_capture(stream, mode, nullptr, {});
}

}  // namespace frostline::emulator

using namespace frostline::emulator;

FROSTLINE_EXPORTED CUresult CUDAAPI cuStreamBeginCapture(CUstream stream,
                                                         CUstreamCaptureMode mode) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call& call) { return begin_capture_on(call, stream, mode); });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuStreamBeginCaptureToGraph(CUstream handle, CUgraph hgraph,
                                                                const CUgraphNode* dependencies,
                                                                const CUgraphEdgeData* edges,
                                                                size_t count,
                                                                CUstreamCaptureMode mode) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (!is_mode(mode)) return CUDA_ERROR_INVALID_VALUE;
        if (edges != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
        CUresult error = CUDA_SUCCESS;
        const auto stream = resolve_stream(call.context, handle, error);
        if (stream == nullptr) return error;
        const auto graph = GraphObjects::instance().graphs.find(number_of(hgraph));
        GraphNodes first;
        if (graph == nullptr || graph->in_capture ||
            !resolve_nodes(*graph, dependencies, count, first)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        return begin_capture(stream, mode, graph, std::move(first));
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuStreamEndCapture(CUstream handle, CUgraph* hgraph) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (hgraph == nullptr) return CUDA_ERROR_INVALID_VALUE;
        CUresult error = CUDA_SUCCESS;
        const auto stream = resolve_stream(call.context, handle, error);
        if (stream == nullptr) return error;
        std::shared_ptr<Graph> graph;
        const CUresult result = end_capture(stream, graph);
        *hgraph = graph == nullptr ? nullptr : handle_of<CUgraph>(graph->handle);
        return result;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuStreamIsCapturing(CUstream stream,
                                                        CUstreamCaptureStatus* status) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call& call) { return query_capture(call, stream, {status}); });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuStreamGetCaptureInfo(
    CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
    const CUgraphNode** dependencies, const CUgraphEdgeData** edges, size_t* count) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (edges != nullptr && dependencies == nullptr) return CUDA_ERROR_INVALID_VALUE;
        return query_capture(call, stream, {status, id, graph, dependencies, edges, count});
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuStreamUpdateCaptureDependencies(CUstream stream,
                                                                      CUgraphNode* dependencies,
                                                                      const CUgraphEdgeData* edges,
                                                                      size_t count,
                                                                      unsigned flags) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (edges != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
        return update_dependencies(call, stream, dependencies, count, flags);
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call&) -> CUresult {
        if (mode == nullptr || !is_mode(*mode)) return CUDA_ERROR_INVALID_VALUE;
        std::swap(*mode, thread_capture_mode());
        return CUDA_SUCCESS;
    });
}
