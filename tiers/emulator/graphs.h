// What the functions on graphs have in common. The driver's mutex is held.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <memory>

#include "tiers/emulator/function.h"
#include "tiers/emulator/graph.h"

namespace frostline::emulator {

/// Null after a report if the handle names no graph (any more).
std::shared_ptr<Graph> resolve_graph(CUgraph handle, const Call& call);

/// Where a node that a program adds goes.
struct NodePlace {
    CUgraphNode* node;
    CUgraph graph;
    const CUgraphNode* dependencies;
    std::size_t count;
};

/// Adds a node of that work, which may be null. Errors: CUDA_ERROR_INVALID_VALUE (no such graph, no
/// place for the handle, a dependency that is none of the graph's; reported).
CUresult add_node(const Call& call, const NodePlace& place, CUgraphNodeType type,
                  std::shared_ptr<Operation> work);

/// Errors: CUDA_ERROR_INVALID_VALUE (no such graph, one that is still captured into, flags that are
/// unknown or for launches from a device).
CUresult instantiate_graph(const Call& call, CUgraphExec* handle, CUgraph hgraph, cuuint64_t flags);

}  // namespace frostline::emulator
