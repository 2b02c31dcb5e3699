// When a call that is potentially unsafe is prohibited: the rules of
// cuThreadExchangeStreamCaptureMode.
#include "tiers/emulator/capture.h"

#include "tiers/emulator/driver.h"

namespace frostline::emulator {
namespace {

/// Whether this capture keeps the calling thread from making unsafe calls.
bool prohibits(const Capture& capture) {
    if (thread_capture_mode() == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
    if (capture.thread == std::this_thread::get_id()) {
        return capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    }
    return thread_capture_mode() == CU_STREAM_CAPTURE_MODE_GLOBAL &&
           capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

}  // namespace

CUstreamCaptureMode& thread_capture_mode() noexcept {
    static thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    return mode;
}

bool unsafe_call_prohibited() {
    for (const auto& capture : driver().captures) {
        if (prohibits(*capture)) return true;
    }
    return false;
}

void invalidate_captures() {
    for (const auto& capture : driver().captures) {
        if (prohibits(*capture)) capture->invalidated = true;
    }
}

}  // namespace frostline::emulator
