// Stream capture: operations that are submitted to a captured stream become nodes of a graph, and
// events carry the order from one captured stream to another. A capture that broke a rule stays
// invalid until its own stream ends it, and then there is no graph.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "tiers/emulator/capture.h"
#include "tiers/emulator/graph.h"
#include "tiers/emulator/stream.h"

namespace frostline::emulator {

/// What Capture::graph points to. The driver's mutex guards it.
struct CaptureGraph {
    struct Branch {
        std::weak_ptr<Stream> stream;
        GraphNodes last;  ///< what the stream's next node depends on
    };
    std::uint64_t id = 0;
    std::shared_ptr<Graph> graph;
    bool owns_graph = true;               ///< false: the user's, which outlives a failure
    Stream* origin = nullptr;             ///< where it began, and has to end
    std::map<Stream*, Branch> branches;   ///< all streams that take part
    std::vector<CUgraphNode> last_asked;  ///< what a query of dependencies returned
};

CaptureGraph& graph_of(const Capture& capture) noexcept;

// All of these are called with the driver's mutex held.

/// Errors: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED (the legacy stream), CUDA_ERROR_ILLEGAL_STATE
/// (captured already); both are reported. `into`: an existing graph, or null for a new one.
CUresult begin_capture(const std::shared_ptr<Stream>& stream, CUstreamCaptureMode mode,
                       const std::shared_ptr<Graph>& into, GraphNodes first);

/// Ends it; `graph` is null unless it succeeds. Errors: those of cuStreamEndCapture, reported.
CUresult end_capture(const std::shared_ptr<Stream>& stream, std::shared_ptr<Graph>& graph);

/// cuEventRecord into a captured stream: nothing runs; the event stands for what was captured.
CUresult record_in_capture(const std::shared_ptr<Stream>& stream, Event& event);

/// cuStreamWaitEvent where the stream or the event takes part in a capture. A stream that does not
/// joins the event's capture.
CUresult wait_in_capture(const std::shared_ptr<Stream>& stream, const Event& event);

/// Whether a blocking stream of the context is captured, so that the legacy one is unusable; unlike
/// legacy_is_captured this only looks.
bool blocking_stream_is_captured(const Context& context);

}  // namespace frostline::emulator
