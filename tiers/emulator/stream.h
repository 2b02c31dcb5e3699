// Streams and events. A stream carries its operations out in the order of submission; an event is
// the last record of it that was submitted, so that waiting for it means waiting for that one.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <deque>
#include <memory>

#include "tiers/emulator/capture.h"
#include "tiers/emulator/operation.h"

namespace frostline::emulator {

struct Stream {
    CUstream handle = nullptr;
    std::uint64_t id = 0;
    std::weak_ptr<Context> context;
    int device = 0;
    unsigned flags = CU_STREAM_DEFAULT;
    int priority = 0;
    bool legacy = false;  ///< the context's null stream
    /// Front first. The front is the only one that may be ready or running.
    std::deque<std::shared_ptr<Operation>> queue;
    std::shared_ptr<Operation> last;   ///< the last that was submitted; null before the first
    std::shared_ptr<Capture> capture;  ///< null unless the stream is being captured
    std::uint64_t free_ns = 0;  ///< when its last timed operation ended, as throttling has it

    /// Whether it takes part in the legacy stream's implicit synchronisation.
    bool blocking() const { return !legacy && (flags & CU_STREAM_NON_BLOCKING) == 0; }
};

struct Event {
    CUevent handle = nullptr;
    std::weak_ptr<Context> context;
    int device = 0;
    unsigned flags = CU_EVENT_DEFAULT;
    std::shared_ptr<Operation> record;   ///< null before the first record
    std::shared_ptr<Capture> capture;    ///< set if the last record was captured
    std::shared_ptr<void> capture_node;  ///< what the capture's owner keeps for that record
};

}  // namespace frostline::emulator
