// Nodes that copy or fill. They are made by the very functions that streams use, which are given a
// stream of this file's own whose capture keeps the operation.
#include <utility>

#include "tiers/emulator/copy_plan.h"
#include "tiers/emulator/exported.h"
#include "tiers/emulator/graphs.h"
#include "tiers/emulator/kernel_objects.h"

namespace frostline::emulator {
namespace {

// `make(stream)` submits one operation, or none if there is nothing to do.
template <class Make>
CUresult add_made(const Call& call, const NodePlace& place, CUgraphNodeType type,
                  const std::shared_ptr<Context>& context, Make&& make) {
    std::shared_ptr<Operation> work;
    const auto stream = std::make_shared<Stream>();
    stream->context = context;
    stream->device = context->device;
    stream->capture = std::make_shared<Capture>();
    stream->capture->add = [&work](const std::shared_ptr<Operation>& operation) {
        operation->stream = nullptr;
        work = operation;
        return CUDA_SUCCESS;
    };
    const CUresult made = make(stream);
    if (made != CUDA_SUCCESS) return made;
    return add_node(call, place, type, std::move(work));
}

// False for memory that is none here: arrays.
bool side_of(CUmemorytype type, const void* host, CUdeviceptr device, std::size_t offset,
             std::size_t pitch, CopySide& side) {
    switch (type) {
        case CU_MEMORYTYPE_HOST:
            side = {reinterpret_cast<std::uintptr_t>(host) + offset, pitch, Expect::host};
            return true;
        case CU_MEMORYTYPE_DEVICE:
            side = {device + offset, pitch, Expect::device};
            return true;
        case CU_MEMORYTYPE_UNIFIED:
            side = {device + offset, pitch, Expect::any};
            return true;
        default:
            return false;
    }
}

CUresult sides_of(const Call& call, const CUDA_MEMCPY3D& p, CopySide& target, CopySide& source) {
    if (p.Depth > 1 || p.srcZ != 0 || p.dstZ != 0) return CUDA_ERROR_NOT_SUPPORTED;
    const bool flat = p.Height <= 1;
    if (!flat && (p.srcPitch < p.WidthInBytes || p.dstPitch < p.WidthInBytes)) {
        return refuse_value(call, "a pitch is smaller than a row");
    }
    const bool known = side_of(p.srcMemoryType, p.srcHost, p.srcDevice,
                               p.srcY * p.srcPitch + p.srcXInBytes, p.srcPitch, source) &&
                       side_of(p.dstMemoryType, p.dstHost, p.dstDevice,
                               p.dstY * p.dstPitch + p.dstXInBytes, p.dstPitch, target);
    return known ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

std::shared_ptr<Context> context_of(const Call& call, CUcontext handle) {
    return handle == nullptr ? call.context : driver().contexts.find(number_of(handle));
}

}  // namespace
}  // namespace frostline::emulator

using namespace frostline::emulator;

// Flat and two-dimensional copies; not between arrays.
FROSTLINE_EXPORTED CUresult CUDAAPI cuGraphAddMemcpyNode(CUgraphNode* node, CUgraph graph,
                                                         const CUgraphNode* dependencies,
                                                         size_t count,
                                                         const CUDA_MEMCPY3D* parameters,
                                                         CUcontext handle) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (parameters == nullptr) return refuse_value(call, "the parameters are null");
        const auto context = context_of(call, handle);
        if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
        CopySide target;
        CopySide source;
        const CUresult known = sides_of(call, *parameters, target, source);
        if (known != CUDA_SUCCESS) return known;
        const CopyShape shape{parameters->WidthInBytes, parameters->Height};
        return add_made(call, {node, graph, dependencies, count}, CU_GRAPH_NODE_TYPE_MEMCPY,
                        context, [&](const std::shared_ptr<Stream>& stream) {
                            return copy(call, stream, target, source, shape, Waiting::asynchronous);
                        });
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuGraphAddMemsetNode(CUgraphNode* node, CUgraph graph,
                                                         const CUgraphNode* dependencies,
                                                         size_t count,
                                                         const CUDA_MEMSET_NODE_PARAMS* parameters,
                                                         CUcontext handle) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (parameters == nullptr) return refuse_value(call, "the parameters are null");
        const CUDA_MEMSET_NODE_PARAMS& p = *parameters;
        const std::size_t width = p.width * p.elementSize;
        if (p.elementSize != 1 && p.elementSize != 2 && p.elementSize != 4) {
            return refuse_value(call, "the size of an element");
        }
        if (p.height > 1 && p.pitch < width) return refuse_value(call, "the pitch");
        const auto context = context_of(call, handle);
        if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
        return add_made(call, {node, graph, dependencies, count}, CU_GRAPH_NODE_TYPE_MEMSET,
                        context, [&](const std::shared_ptr<Stream>& stream) {
                            return fill(call, stream, {p.dst, p.pitch, Expect::device},
                                        {width, p.height}, p.value, p.elementSize,
                                        Waiting::asynchronous);
                        });
    });
}
