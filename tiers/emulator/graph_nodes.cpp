// Nodes that a program adds to a graph itself. What a node says is checked and copied when it is
// added, as a launch's is.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): cuda.h's own name
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <utility>

#include "tiers/emulator/exported.h"
#include "tiers/emulator/graphs.h"
#include "tiers/emulator/host_functions.h"
#include "tiers/emulator/kernel_launch.h"
#include "tiers/emulator/kernel_objects.h"

namespace frostline::emulator {

CUresult add_node(const Call& call, const NodePlace& place, CUgraphNodeType type,
                  std::shared_ptr<Operation> work) {
    if (place.node == nullptr) return refuse_value(call, "the node's place is null");
    const auto graph = resolve_graph(place.graph, call);
    if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    GraphNodes dependencies;
    if (!resolve_nodes(*graph, place.dependencies, place.count, dependencies)) {
        return refuse_value(call, "a dependency is no node of the graph");
    }
    const auto node =
        GraphObjects::instance().add_node(*graph, type, std::move(work), std::move(dependencies));
    *place.node = handle_of<CUgraphNode>(node->handle);
    return CUDA_SUCCESS;
}

namespace {

// Both versions of the parameters begin with the same fields.
template <class Parameters>
CUresult add_kernel(const Call& call, const NodePlace& place, CUfunction function,
                    const std::shared_ptr<Context>& context, const Parameters& p) {
    const LaunchRequest request{
        function,
        {{p.gridDimX, p.gridDimY, p.gridDimZ}, {p.blockDimX, p.blockDimY, p.blockDimZ}},
        p.sharedMemBytes,
        p.kernelParams,
        p.extra};
    std::shared_ptr<Operation> work;
    const CUresult made = make_launch(call, request, context, work);
    if (made != CUDA_SUCCESS) return made;
    return add_node(call, place, CU_GRAPH_NODE_TYPE_KERNEL, std::move(work));
}

}  // namespace
}  // namespace frostline::emulator

using namespace frostline::emulator;

FROSTLINE_EXPORTED CUresult CUDAAPI
cuGraphAddKernelNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                     size_t count, const CUDA_KERNEL_NODE_PARAMS_v1* parameters) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (parameters == nullptr) return refuse_value(call, "the parameters are null");
        return add_kernel(call, {node, graph, dependencies, count}, parameters->func, call.context,
                          *parameters);
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI
cuGraphAddKernelNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                        size_t count, const CUDA_KERNEL_NODE_PARAMS_v2* parameters) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (parameters == nullptr) return refuse_value(call, "the parameters are null");
        // The other two fields count only where there is no function.
        CUfunction function = parameters->func;
        std::shared_ptr<Context> context = call.context;
        if (function == nullptr) {
            function = reinterpret_cast<CUfunction>(parameters->kern);
            if (parameters->ctx != nullptr) {
                context = driver().contexts.find(number_of(parameters->ctx));
            }
        }
        if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
        return add_kernel(call, {node, graph, dependencies, count}, function, context, *parameters);
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuGraphAddEmptyNode(CUgraphNode* node, CUgraph graph,
                                                        const CUgraphNode* dependencies,
                                                        size_t count) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call& call) {
        return add_node(call, {node, graph, dependencies, count}, CU_GRAPH_NODE_TYPE_EMPTY,
                        nullptr);
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuGraphAddHostNode(CUgraphNode* node, CUgraph graph,
                                                       const CUgraphNode* dependencies,
                                                       size_t count,
                                                       const CUDA_HOST_NODE_PARAMS* parameters) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (parameters == nullptr || parameters->fn == nullptr) {
            return refuse_value(call, "the function is null");
        }
        return add_node(
            call, {node, graph, dependencies, count}, CU_GRAPH_NODE_TYPE_HOST,
            make_host_function(call.context->device, parameters->fn, parameters->userData));
    });
}
