// A node stands behind its dependencies in its graph, because it can only be given ones that exist;
// so the order of nodes is one in which they may run.
#include "tiers/emulator/graph.h"

#include <algorithm>
#include <map>
#include <random>
#include <utility>

#include "tiers/emulator/driver.h"

namespace frostline::emulator {
namespace {

using Leak = std::function<void(const char*, std::size_t, std::uint64_t)>;

template <class Object>
void report_leak(const HandleTable<Object>& table, const char* kind, const Leak& leak) {
    if (!table.all().empty()) leak(kind, table.all().size(), table.all().begin()->first);
}

// Takes one of `ready` out, whichever the seed says.
std::size_t take_any(std::vector<std::size_t>& ready) {
    std::uniform_int_distribution<std::size_t> pick(0, ready.size() - 1);
    std::swap(ready[pick(driver().random)], ready.back());
    const std::size_t taken = ready.back();
    ready.pop_back();
    return taken;
}

// Some order of the steps that their dependencies allow.
std::vector<std::size_t> some_order(const GraphExec& exec) {
    std::vector<std::size_t> missing(exec.steps.size());
    std::vector<std::vector<std::size_t>> dependents(exec.steps.size());
    std::vector<std::size_t> ready;
    for (std::size_t i = 0; i < exec.steps.size(); ++i) {
        missing[i] = exec.steps[i].dependencies.size();
        for (const std::size_t before : exec.steps[i].dependencies) dependents[before].push_back(i);
        if (missing[i] == 0) ready.push_back(i);
    }
    std::vector<std::size_t> order;
    while (!ready.empty()) {
        order.push_back(take_any(ready));
        for (const std::size_t next : dependents[order.back()]) {
            if (--missing[next] == 0) ready.push_back(next);
        }
    }
    return order;
}

}  // namespace

GraphObjects& GraphObjects::instance() {
    // Never destroyed, as the driver.
    static GraphObjects* const objects = [] {
        auto* const made = new GraphObjects;
        driver().owners.push_back({[made](const Leak& leak) {
                                       report_leak(made->graphs, "graphs", leak);
                                       report_leak(made->execs, "instantiated graphs", leak);
                                   },
                                   [made] {
                                       made->execs.clear();
                                       made->nodes.clear();
                                       made->graphs.clear();
                                   }});
        return made;
    }();
    return *objects;
}

std::shared_ptr<Graph> GraphObjects::new_graph() {
    auto graph = std::make_shared<Graph>();
    graph->handle = graphs.add(graph);
    return graph;
}

std::shared_ptr<GraphNode> GraphObjects::add_node(Graph& graph, CUgraphNodeType type,
                                                  std::shared_ptr<const Operation> work,
                                                  GraphNodes dependencies) {
    auto node = std::make_shared<GraphNode>();
    node->graph = graph.handle;
    node->type = type;
    node->work = std::move(work);
    node->dependencies = std::move(dependencies);
    node->handle = nodes.add(node);
    graph.nodes.push_back(node);
    return node;
}

void GraphObjects::destroy(const std::shared_ptr<Graph>& graph) {
    for (const auto& node : graph->nodes) nodes.remove(node->handle);
    graphs.remove(graph->handle);
}

std::shared_ptr<GraphExec> GraphObjects::instantiate(const Graph& graph, cuuint64_t flags) {
    auto exec = std::make_shared<GraphExec>();
    exec->flags = flags;
    std::map<const GraphNode*, std::size_t> index_of;
    for (const auto& node : graph.nodes) {
        GraphExec::Step step{node->work, {}};
        for (const auto& before : node->dependencies) {
            step.dependencies.push_back(index_of.at(before.get()));
        }
        index_of.emplace(node.get(), exec->steps.size());
        exec->steps.push_back(std::move(step));
    }
    exec->handle = execs.add(exec);
    return exec;
}

bool GraphObjects::names(std::uintptr_t address) const {
    const auto covers = [address](const TouchedRange& range) {
        return address >= range.address && address - range.address < range.bytes;
    };
    const auto step_names = [&](const GraphExec::Step& step) {
        return step.work != nullptr &&
               std::any_of(step.work->touched.begin(), step.work->touched.end(), covers);
    };
    return std::any_of(execs.all().begin(), execs.all().end(), [&](const auto& entry) {
        const auto& steps = entry.second->steps;
        return std::any_of(steps.begin(), steps.end(), step_names);
    });
}

bool resolve_nodes(const Graph& graph, const CUgraphNode* handles, std::size_t count,
                   GraphNodes& nodes) {
    if (count > 0 && handles == nullptr) return false;
    for (std::size_t i = 0; i < count; ++i) {
        const auto node =
            GraphObjects::instance().nodes.find(reinterpret_cast<std::uint64_t>(handles[i]));
        if (node == nullptr || node->graph != graph.handle) return false;
        nodes.push_back(node);
    }
    return true;
}

CUresult launch_graph(const GraphExec& exec, const std::shared_ptr<Stream>& stream) {
    for (const std::size_t index : some_order(exec)) {
        const auto& work = exec.steps[index].work;
        if (work == nullptr) continue;
        const auto operation = std::make_shared<Operation>(*work);
        operation->stream = stream;
        const CUresult result = submit(operation);
        if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
}

CUgraphNodeType node_type_of(const Operation& operation) noexcept {
    switch (operation.kind) {
        case OperationKind::kernel:
            return CU_GRAPH_NODE_TYPE_KERNEL;
        case OperationKind::fill:
            return CU_GRAPH_NODE_TYPE_MEMSET;
        case OperationKind::host_function:
            return CU_GRAPH_NODE_TYPE_HOST;
        case OperationKind::marker:
        case OperationKind::memory:
            return CU_GRAPH_NODE_TYPE_EMPTY;
        default:
            return CU_GRAPH_NODE_TYPE_MEMCPY;
    }
}

}  // namespace frostline::emulator
