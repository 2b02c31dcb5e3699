// The driver's functions on whole graphs: made, looked into, instantiated, launched, destroyed.
#include "tiers/emulator/graphs.h"

#include <cuda.h>

#include <algorithm>

#include "tiers/emulator/emulator.h"
#include "tiers/emulator/exported.h"
#include "tiers/emulator/graph.h"
#include "tiers/emulator/kernel_objects.h"

namespace frostline::emulator {

std::shared_ptr<Graph> resolve_graph(CUgraph handle, const Call& call) {
    const auto& graphs = GraphObjects::instance().graphs;
    auto graph = graphs.find(number_of(handle));
    if (graph == nullptr) {
        report_bad_handle(graphs.state(number_of(handle)), "graph", number_of(handle),
                          call.function);
    }
    return graph;
}

CUresult instantiate_graph(const Call& call, CUgraphExec* handle, CUgraph hgraph,
                           cuuint64_t flags) {
    constexpr cuuint64_t kKnown = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                                  CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
                                  CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    if (handle == nullptr || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
    const auto graph = resolve_graph(hgraph, call);
    if (graph == nullptr || graph->in_capture) return CUDA_ERROR_INVALID_VALUE;
    const auto exec = GraphObjects::instance().instantiate(*graph, flags);
    *handle = handle_of<CUgraphExec>(exec->handle);
    return CUDA_SUCCESS;
}

namespace {

std::shared_ptr<GraphExec> resolve_exec(CUgraphExec handle, const Call& call) {
    const auto& execs = GraphObjects::instance().execs;
    auto exec = execs.find(number_of(handle));
    if (exec == nullptr) {
        report_bad_handle(execs.state(number_of(handle)), "instantiated graph", number_of(handle),
                          call.function);
    }
    return exec;
}

// As all functions that fill an array: without one they say how long it has to be; entries that
// the array has room for and the graph lacks become null.
void give_nodes(const GraphNodes& nodes, CUgraphNode* array, std::size_t* count) {
    if (array != nullptr) {
        for (std::size_t i = 0; i < *count; ++i) {
            array[i] = i < nodes.size() ? handle_of<CUgraphNode>(nodes[i]->handle) : nullptr;
        }
        *count = std::min(*count, nodes.size());
    } else {
        *count = nodes.size();
    }
}

}  // namespace
}  // namespace frostline::emulator

using namespace frostline::emulator;

FROSTLINE_EXPORTED CUresult CUDAAPI cuGraphCreate(CUgraph* hgraph, unsigned flags) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call&) -> CUresult {
        if (hgraph == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
        *hgraph = handle_of<CUgraph>(GraphObjects::instance().new_graph()->handle);
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuGraphDestroy(CUgraph hgraph) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        const auto graph = resolve_graph(hgraph, call);
        if (graph == nullptr || graph->in_capture) return CUDA_ERROR_INVALID_VALUE;
        GraphObjects::instance().destroy(graph);
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuGraphGetNodes(CUgraph hgraph, CUgraphNode* nodes,
                                                    size_t* count) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        const auto graph = resolve_graph(hgraph, call);
        if (graph == nullptr || count == nullptr) return CUDA_ERROR_INVALID_VALUE;
        give_nodes(graph->nodes, nodes, count);
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuGraphGetRootNodes(CUgraph hgraph, CUgraphNode* nodes,
                                                        size_t* count) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        const auto graph = resolve_graph(hgraph, call);
        if (graph == nullptr || count == nullptr) return CUDA_ERROR_INVALID_VALUE;
        GraphNodes roots;
        std::copy_if(graph->nodes.begin(), graph->nodes.end(), std::back_inserter(roots),
                     [](const auto& node) { return node->dependencies.empty(); });
        give_nodes(roots, nodes, count);
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType* type) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call&) -> CUresult {
        const auto node = GraphObjects::instance().nodes.find(number_of(handle));
        if (node == nullptr || type == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *type = node->type;
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuGraphInstantiate(CUgraphExec* exec, CUgraph graph,
                                                       unsigned long long flags) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call& call) { return instantiate_graph(call, exec, graph, flags); });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuGraphInstantiateWithParams(
    CUgraphExec* exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
        const CUresult result = instantiate_graph(call, exec, graph, params->flags);
        params->hErrNode_out = nullptr;
        params->result_out =
            result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
        return result;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuGraphExecGetFlags(CUgraphExec handle, cuuint64_t* flags) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        const auto exec = resolve_exec(handle, call);
        if (exec == nullptr || flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *flags = exec->flags;
        return CUDA_SUCCESS;
    });
}

// Everything a launch needs is in host memory here; so there is nothing to upload.
FROSTLINE_EXPORTED CUresult CUDAAPI cuGraphUpload(CUgraphExec handle, CUstream stream) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (resolve_exec(handle, call) == nullptr) return CUDA_ERROR_INVALID_VALUE;
        CUresult error = CUDA_SUCCESS;
        return resolve_stream(call.context, stream, error) == nullptr ? error : CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuGraphLaunch(CUgraphExec handle, CUstream stream) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        const auto exec = resolve_exec(handle, call);
        if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
        CUresult error = CUDA_SUCCESS;
        const auto target = resolve_stream(call.context, stream, error);
        if (target == nullptr) return error;
        return launch_graph(*exec, target);
    });
}

// What of it is queued or running goes on: an operation owns all that it needs.
FROSTLINE_EXPORTED CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec handle) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        const auto exec = resolve_exec(handle, call);
        if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
        GraphObjects::instance().execs.remove(exec->handle);
        return CUDA_SUCCESS;
    });
}

int frostline_emulator_captured(uint64_t address) {
    const std::lock_guard<std::mutex> lock(driver().mutex);
    return GraphObjects::instance().names(address) ? 1 : 0;
}
