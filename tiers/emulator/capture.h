// The hook of stream capture in the core: which captures are active, in which mode and begun by
// whom, and where operations go that are submitted to a stream that is captured. What a capture
// keeps, and what becomes of it, is its owner's.
#pragma once

#include <cuda.h>

#include <functional>
#include <memory>
#include <thread>

namespace frostline::emulator {

struct Event;
struct Operation;
struct Stream;

struct Capture {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    std::thread::id thread;  ///< that began it
    bool invalidated = false;
    /// Takes an operation in place of the stream's queue; the driver's mutex is held.
    std::function<CUresult(const std::shared_ptr<Operation>&)> add;
    /// The same for the record of an event in a captured stream, and for a wait of which the stream
    /// or the event's last record is captured.
    std::function<CUresult(const std::shared_ptr<Stream>&, const std::shared_ptr<Event>&)>
        record_event, wait_event;
    std::shared_ptr<void> graph;  ///< whatever the owner keeps
};

/// The calling thread's mode, as cuThreadExchangeStreamCaptureMode sets it.
CUstreamCaptureMode& thread_capture_mode() noexcept;

/// Whether a call that is potentially unsafe during capture is prohibited to the calling thread
/// now. The driver's mutex is held.
bool unsafe_call_prohibited();

/// Marks as invalid every capture that a prohibited call of this thread conflicts with.
void invalidate_captures();

}  // namespace frostline::emulator
