// What all versions of the capture functions have in common: they differ in what they can tell.
#pragma once

#include <cuda.h>

#include <cstddef>

#include "tiers/emulator/function.h"

namespace frostline::emulator {

/// Where to put what is known of a stream's capture; all but the status may be null.
struct CaptureQuery {
    CUstreamCaptureStatus* status = nullptr;
    cuuint64_t* id = nullptr;
    CUgraph* graph = nullptr;
    const CUgraphNode** dependencies = nullptr;
    const CUgraphEdgeData** edges = nullptr;
    std::size_t* count = nullptr;
};

/// The driver's mutex is held, as for the others. Errors as cuStreamGetCaptureInfo.
CUresult query_capture(const Call& call, CUstream handle, const CaptureQuery& query);

/// Errors as cuStreamUpdateCaptureDependencies.
CUresult update_dependencies(const Call& call, CUstream handle, const CUgraphNode* dependencies,
                             std::size_t count, unsigned flags);

/// Errors as cuStreamBeginCapture.
CUresult begin_capture_on(const Call& call, CUstream handle, CUstreamCaptureMode mode);

}  // namespace frostline::emulator
