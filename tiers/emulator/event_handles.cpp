// A record is a marker in a stream; a wait is a marker that the record blocks.
#include "tiers/emulator/event_handles.h"

#include "tiers/emulator/exported.h"

namespace frostline::emulator {

std::shared_ptr<Event> resolve_event(CUevent handle, CUresult& error) {
    const auto number = reinterpret_cast<std::uint64_t>(handle);
    auto event = driver().events.find(number);
    if (!event) {
        const bool destroyed = driver().events.state(number) == HandleState::destroyed;
        error = refuse(destroyed ? "destroyed-handle" : "bad-handle",
                       fmt::format("event {:#x}", number), CUDA_ERROR_INVALID_HANDLE);
    }
    return event;
}

CUresult stream_wait_event(const std::shared_ptr<Stream>& stream,
                           const std::shared_ptr<Event>& event) {
    if (event->capture || stream->capture) {
        const auto& capture = event->capture ? event->capture : stream->capture;
        return capture->wait_event(stream, event);
    }
    if (!event->record || event->record->state == Operation::State::done) return CUDA_SUCCESS;
    auto marker = std::make_shared<Operation>();
    marker->stream = stream;
    marker->device = stream->device;
    depend(marker, event->record);
    return submit(marker);
}

CUresult record_event(const std::shared_ptr<Stream>& stream, const std::shared_ptr<Event>& event) {
    if (event->context.lock() != stream->context.lock()) {
        return refuse("wrong-device", "an event is recorded in a stream of another context",
                      CUDA_ERROR_INVALID_HANDLE);
    }
    if (stream->capture) return stream->capture->record_event(stream, event);
    auto marker = std::make_shared<Operation>();
    marker->stream = stream;
    marker->device = stream->device;
    const CUresult result = submit(marker);
    if (result != CUDA_SUCCESS) return result;
    event->record = std::move(marker);
    event->capture = nullptr;
    event->capture_node = nullptr;
    return CUDA_SUCCESS;
}

}  // namespace frostline::emulator
