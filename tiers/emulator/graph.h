// Graphs of operations, and what is made of them to run. A graph's nodes are patterns: each launch
// submits copies of them, in some order that the dependencies allow, chosen under the seed.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tiers/emulator/handle_table.h"
#include "tiers/emulator/operation.h"

namespace frostline::emulator {

struct GraphNode {
    std::uint64_t handle = 0;
    std::uint64_t graph = 0;
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    std::shared_ptr<const Operation> work;  ///< never submitted itself; null: nothing to do
    std::vector<std::shared_ptr<GraphNode>> dependencies;
};

using GraphNodes = std::vector<std::shared_ptr<GraphNode>>;

struct Graph {
    std::uint64_t handle = 0;
    GraphNodes nodes;         ///< each after all that it depends on
    bool in_capture = false;  ///< being captured into: not instantiable, not the user's to destroy
};

/// An instantiated graph; the graph that it was made of may be gone.
struct GraphExec {
    struct Step {
        std::shared_ptr<const Operation> work;
        std::vector<std::size_t> dependencies;  ///< indices of steps before this one
    };
    std::uint64_t handle = 0;
    std::vector<Step> steps;
    cuuint64_t flags = 0;
};

/// The driver's mutex guards it.
struct GraphObjects {
    HandleTable<Graph> graphs{19};
    HandleTable<GraphNode> nodes{20};
    HandleTable<GraphExec> execs{21};

    /// Made with the first use, and known to the driver's restarts from then on.
    static GraphObjects& instance();

    std::shared_ptr<Graph> new_graph();
    std::shared_ptr<GraphNode> add_node(Graph& graph, CUgraphNodeType type,
                                        std::shared_ptr<const Operation> work,
                                        GraphNodes dependencies);
    void destroy(const std::shared_ptr<Graph>& graph);
    std::shared_ptr<GraphExec> instantiate(const Graph& graph, cuuint64_t flags);

    /// Whether a graph that was instantiated, and not destroyed since, names this address.
    bool names(std::uintptr_t address) const;
};

/// The nodes that the handles name; false if one is none of the graph's.
bool resolve_nodes(const Graph& graph, const CUgraphNode* handles, std::size_t count,
                   GraphNodes& nodes);

/// Submits a copy of every step to the stream.
CUresult launch_graph(const GraphExec& exec, const std::shared_ptr<Stream>& stream);

/// What kind of node an operation makes.
CUgraphNodeType node_type_of(const Operation& operation) noexcept;

}  // namespace frostline::emulator
