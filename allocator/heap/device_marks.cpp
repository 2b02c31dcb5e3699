// A stream of a peer has its events made and recorded in the peer's own context.
#include "allocator/heap/device_marks.h"

#include <algorithm>
#include <new>

namespace frostline {
namespace {

CUstream stream_of(StreamHandle handle) noexcept {
    return reinterpret_cast<CUstream>(handle);
}

bool says_destroyed(CUresult answer) noexcept {
    return answer == CUDA_ERROR_INVALID_HANDLE || answer == CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

Error destroyed(StreamHandle stream) noexcept {
    return Error(Errc::not_found, 0, "stream {:#x} was destroyed", stream);
}

Error no_memory() noexcept {
    return Error(Errc::out_of_memory, 0, "no memory to note an event of a GPU's stream");
}

}  // namespace

DeviceMarks::Event& DeviceMarks::Event::operator=(Event&& other) noexcept {
    if (this == &other) return *this;
    give_back();
    home_ = other.home_;
    event_ = std::exchange(other.event_, std::nullopt);
    return *this;
}

void DeviceMarks::Event::give_back() noexcept {
    if (event_.has_value()) home_->spare.push_back(*std::exchange(event_, std::nullopt));
}

DeviceMarks::DeviceMarks(std::shared_ptr<const CudaContext> context, std::vector<int> peers)
    : peers_(std::move(peers)), own_{std::move(context)} {}

Result<void> DeviceMarks::admit(StreamHandle stream) noexcept {
    if (stream_of(stream) == CU_STREAM_PER_THREAD) {
        return Error(Errc::invalid_argument, 0,
                     "the per-thread default stream is another one on each thread, and memory is "
                     "kept by stream: give a stream that was created, or 0");
    }
    FROSTLINE_TRY(const int device, gpu_of_stream(*own_.context, stream_of(stream)));
    if (device == own_.context->device()) return ok();
    try {
        return admit_foreign(stream, device);
    } catch (const std::bad_alloc&) {
        return no_memory();
    }
}

// The peer's context is kept from now on, and not before: a stream of it shows that it is in use.
Result<void> DeviceMarks::admit_foreign(StreamHandle stream, int device) {
    if (std::find(peers_.begin(), peers_.end(), device) == peers_.end()) {
        return Error(Errc::invalid_argument, 0,
                     "a stream of GPU {} cannot use memory of GPU {}: name it among the peers",
                     device, own_.context->device());
    }
    auto known = std::find_if(of_peers_.begin(), of_peers_.end(),
                              [&](const auto& each) { return each->context->device() == device; });
    if (known == of_peers_.end()) {
        FROSTLINE_TRY(auto context, CudaContext::create(own_.context->driver(), device));
        const std::lock_guard lock(mutex_);
        of_peers_.push_back(std::make_unique<Events>(Events{std::move(context)}));
        known = std::prev(of_peers_.end());
    }
    foreign_.emplace_back(stream, known->get());
    return ok();
}

DeviceMarks::Events& DeviceMarks::events_of(StreamHandle stream) noexcept {
    for (const auto& [handle, events] : foreign_) {
        if (handle == stream) return *events;
    }
    return own_;
}

void DeviceMarks::forget(StreamHandle stream) noexcept {
    std::erase_if(foreign_, [&](const auto& known) { return known.first == stream; });
}

// The driver refuses the question for the legacy default stream where it would refuse the mark.
Result<bool> DeviceMarks::may_mark(StreamHandle stream) noexcept {
    const CudaContext& context = *events_of(stream).context;
    const CudaDriver& driver = context.driver();
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    CUresult asked = CUDA_ERROR_UNKNOWN;
    FROSTLINE_TRY_VOID(context.run([&]() -> Result<void> {
        asked = driver.cuStreamIsCapturing(stream_of(stream), &status);
        return ok();
    }));
    if (says_destroyed(asked)) return destroyed(stream);
    return asked == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_NONE;
}

Result<DeviceMarks::Event> DeviceMarks::mark(StreamHandle stream) noexcept {
    FROSTLINE_TRY(Event event, take(events_of(stream)));
    const CudaDriver& driver = event.event_->context().driver();
    CUresult recorded = CUDA_ERROR_UNKNOWN;
    FROSTLINE_TRY_VOID(event.event_->context().run([&]() -> Result<void> {
        recorded = driver.cuEventRecord(event.event_->handle(), stream_of(stream));
        return ok();
    }));
    if (says_destroyed(recorded)) return destroyed(stream);
    FROSTLINE_TRY_VOID(driver.check("cuEventRecord", recorded));
    if (may_mark(stream).value_or(false)) return event;
    // Another thread began to capture it meanwhile, and the event may be the graph's.
    event.event_.reset();
    return Error(Errc::busy, 0, "a stream of a GPU is being captured and takes no mark");
}

Result<DeviceMarks::Event> DeviceMarks::take(Events& events) noexcept {
    if (!events.spare.empty()) {
        Event event(events, std::move(events.spare.back()));
        events.spare.pop_back();
        return event;
    }
    try {
        events.spare.reserve(events.made + 1);
    } catch (const std::bad_alloc&) {
        return no_memory();
    }
    FROSTLINE_TRY(CudaEvent made, CudaEvent::create(events.context));
    ++events.made;
    return Event(events, std::move(made));
}

Result<void> DeviceMarks::order(StreamHandle stream, const Event& event) noexcept {
    return wait_for(*events_of(stream).context, stream_of(stream), *event.event_);
}

// A context's work includes that of streams which were destroyed before they had done it.
Result<void> DeviceMarks::wait_for_all() const noexcept {
    for (std::size_t number = 0;; ++number) {
        const auto context = context_in_use(number);
        if (context == nullptr) return ok();
        const CudaDriver& driver = context->driver();
        FROSTLINE_TRY_VOID(context->run(
            [&] { return driver.check("cuCtxSynchronize", driver.cuCtxSynchronize()); }));
    }
}

std::shared_ptr<const CudaContext> DeviceMarks::context_in_use(std::size_t number) const noexcept {
    if (number == 0) return own_.context;
    const std::lock_guard lock(mutex_);
    return number > of_peers_.size() ? nullptr : of_peers_[number - 1]->context;
}

}  // namespace frostline
