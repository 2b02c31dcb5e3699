// A stream takes part in a capture exactly while it has a branch in it.
#include "tiers/emulator/capture_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "tiers/emulator/driver.h"

namespace frostline::emulator {
namespace {

bool is_active(const std::shared_ptr<Capture>& capture) {
    const auto& active = driver().captures;
    return std::find(active.begin(), active.end(), capture) != active.end();
}

CUresult illegal(Capture* capture, CUresult result, const std::string& details) {
    report_misuse("illegal-during-capture", details);
    if (capture != nullptr) capture->invalidated = true;
    return result;
}

CUresult add_to_capture(Capture& capture, const std::shared_ptr<Operation>& operation) {
    if (capture.invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    // Graphs that own memory are not emulated, so stream-ordered allocation cannot be replayed.
    if (operation->kind == OperationKind::memory) {
        return illegal(&capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                       operation->what + " cannot be captured here");
    }
    CaptureGraph& into = graph_of(capture);
    CaptureGraph::Branch& branch = into.branches.at(operation->stream.get());
    // The stream belongs to the capture, not to the pattern that is replayed elsewhere.
    operation->stream = nullptr;
    const auto node = GraphObjects::instance().add_node(*into.graph, node_type_of(*operation),
                                                        operation, std::move(branch.last));
    branch.last = {node};
    return CUDA_SUCCESS;
}

void join(const std::shared_ptr<Stream>& stream, const std::shared_ptr<Capture>& capture,
          GraphNodes first) {
    stream->capture = capture;
    graph_of(*capture).branches[stream.get()] = {stream, std::move(first)};
}

// The nodes and all that comes before them. Not recursive: a capture may be one long chain.
std::set<const GraphNode*> with_all_before(const GraphNodes& nodes) {
    std::set<const GraphNode*> seen;
    std::vector<const GraphNode*> open;
    const auto visit = [&](const GraphNodes& found) {
        for (const auto& node : found) {
            if (seen.insert(node.get()).second) open.push_back(node.get());
        }
    };
    visit(nodes);
    while (!open.empty()) {
        const GraphNode* const node = open.back();
        open.pop_back();
        visit(node->dependencies);
    }
    return seen;
}

// Whether everything that other streams captured comes before the end of the capture's own stream.
bool is_joined(const CaptureGraph& graph) {
    const auto before = with_all_before(graph.branches.at(graph.origin).last);
    return std::all_of(graph.branches.begin(), graph.branches.end(), [&](const auto& entry) {
        const GraphNodes& last = entry.second.last;
        return std::all_of(last.begin(), last.end(),
                           [&](const auto& node) { return before.contains(node.get()); });
    });
}

void dissolve(const std::shared_ptr<Capture>& capture) {
    for (const auto& [key, branch] : graph_of(*capture).branches) {
        if (const auto stream = branch.stream.lock()) stream->capture = nullptr;
    }
    std::erase(driver().captures, capture);
    graph_of(*capture).graph->in_capture = false;
}

CUresult result_of(const Capture& capture) {
    if (capture.invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (is_joined(graph_of(capture))) return CUDA_SUCCESS;
    report_misuse("not-captured-whole",
                  "cuStreamEndCapture: work of a forked stream was not joined to the stream that "
                  "the capture began on");
    return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
}

}  // namespace

CaptureGraph& graph_of(const Capture& capture) noexcept {
    return *static_cast<CaptureGraph*>(capture.graph.get());
}

CUresult begin_capture(const std::shared_ptr<Stream>& stream, CUstreamCaptureMode mode,
                       const std::shared_ptr<Graph>& into, GraphNodes first) {
    if (stream->legacy) {
        return illegal(nullptr, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                       "cuStreamBeginCapture: the legacy stream cannot be captured");
    }
    if (stream->capture != nullptr) {
        return illegal(nullptr, CUDA_ERROR_ILLEGAL_STATE,
                       "cuStreamBeginCapture: the stream is being captured already");
    }
    auto graph = std::make_shared<CaptureGraph>();
    graph->id = driver().next_id++;
    graph->graph = into != nullptr ? into : GraphObjects::instance().new_graph();
    graph->owns_graph = into == nullptr;
    graph->graph->in_capture = true;
    graph->origin = stream.get();
    auto capture = std::make_shared<Capture>();
    capture->mode = mode;
    capture->thread = std::this_thread::get_id();
    capture->graph = std::move(graph);
    // A plain pointer: the function must not keep alive what owns it.
    capture->add = [raw = capture.get()](const std::shared_ptr<Operation>& operation) {
        return add_to_capture(*raw, operation);
    };
    capture->record_event = [](const auto& where, const auto& event) {
        return record_in_capture(where, *event);
    };
    capture->wait_event = [](const auto& where, const auto& event) {
        return wait_in_capture(where, *event);
    };
    driver().captures.push_back(capture);
    join(stream, capture, std::move(first));
    return CUDA_SUCCESS;
}

CUresult end_capture(const std::shared_ptr<Stream>& stream, std::shared_ptr<Graph>& graph) {
    graph = nullptr;
    const std::shared_ptr<Capture> capture = stream->capture;
    if (capture == nullptr) {
        return illegal(nullptr, CUDA_ERROR_ILLEGAL_STATE,
                       "cuStreamEndCapture: the stream is not being captured");
    }
    CaptureGraph& captured = graph_of(*capture);
    if (captured.origin != stream.get()) {
        return illegal(capture.get(), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
                       "cuStreamEndCapture: the capture began on another stream");
    }
    const bool same_thread = capture->thread == std::this_thread::get_id();
    if (!same_thread && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED) {
        return illegal(nullptr, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
                       "cuStreamEndCapture: another thread began the capture");
    }
    const CUresult result = result_of(*capture);
    dissolve(capture);
    if (result == CUDA_SUCCESS) {
        graph = captured.graph;
    } else if (captured.owns_graph) {
        GraphObjects::instance().destroy(captured.graph);
    }
    return result;
}

CUresult record_in_capture(const std::shared_ptr<Stream>& stream, Event& event) {
    const std::shared_ptr<Capture>& capture = stream->capture;
    if (capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    event.record = nullptr;
    event.capture = capture;
    event.capture_node =
        std::make_shared<GraphNodes>(graph_of(*capture).branches.at(stream.get()).last);
    return CUDA_SUCCESS;
}

CUresult wait_in_capture(const std::shared_ptr<Stream>& stream, const Event& event) {
    Capture* const own = stream->capture.get();
    if (event.capture == nullptr) {
        // Never recorded: nothing to wait for.
        if (event.record == nullptr) return CUDA_SUCCESS;
        return illegal(own, CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
                       "cuStreamWaitEvent: a captured stream cannot wait for uncaptured work");
    }
    if (!is_active(event.capture)) {
        return illegal(own, CUDA_ERROR_CAPTURED_EVENT,
                       "cuStreamWaitEvent: the event was last recorded in a capture that ended");
    }
    if (event.capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (stream->legacy) {
        return illegal(event.capture.get(), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
                       "cuStreamWaitEvent: the legacy stream cannot take part in a capture");
    }
    const auto& nodes = *static_cast<const GraphNodes*>(event.capture_node.get());
    if (own == nullptr) {
        join(stream, event.capture, nodes);
        return CUDA_SUCCESS;
    }
    if (own != event.capture.get()) {
        own->invalidated = true;
        return illegal(event.capture.get(), CUDA_ERROR_STREAM_CAPTURE_MERGE,
                       "cuStreamWaitEvent: two captures cannot become one");
    }
    GraphNodes& last = graph_of(*own).branches.at(stream.get()).last;
    for (const auto& node : nodes) {
        if (std::find(last.begin(), last.end(), node) == last.end()) last.push_back(node);
    }
    return CUDA_SUCCESS;
}

bool blocking_stream_is_captured(const Context& context) {
    for (const auto& capture : driver().captures) {
        for (const auto& [key, branch] : graph_of(*capture).branches) {
            const auto stream = branch.stream.lock();
            if (stream == nullptr || !stream->blocking()) continue;
            if (stream->context.lock().get() == &context) return true;
        }
    }
    return false;
}

}  // namespace frostline::emulator
