// Events as a program sees them. Destroying one that work still waits for is legal: the wait is for
// its record, which lives on.
#include "tiers/emulator/event_handles.h"
#include "tiers/emulator/exported.h"

using namespace frostline::emulator;

namespace {

bool is_done(const Event& event) {
    return !event.record || event.record->state == Operation::State::done;
}

CUresult broken(const Event& event) {
    const auto context = event.context.lock();
    return context ? context->sticky : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult refuse_captured(const Call& call, const Event& event) {
    event.capture->invalidated = true;
    return refuse("illegal-during-capture",
                  fmt::format("{} of an event in a capture", call.function),
                  CUDA_ERROR_CAPTURED_EVENT);
}

CUresult record(Function& self, CUevent event, CUstream stream, unsigned flags) {
    return self.call([&](Call& call) -> CUresult {
        if ((flags & ~unsigned{CU_EVENT_RECORD_EXTERNAL}) != 0) return refuse_value(call, "flags");
        CUresult error = CUDA_SUCCESS;
        const auto found = resolve_event(event, error);
        if (!found) return error;
        const auto where = resolve_stream(call.context, stream, error);
        if (!where) return error;
        return record_event(where, found);
    });
}

CUresult elapsed(const Call& call, float* milliseconds, CUevent start, CUevent end) {
    if (milliseconds == nullptr) return refuse_value(call, "the time's place is null");
    CUresult error = CUDA_SUCCESS;
    const auto first = resolve_event(start, error);
    if (!first) return error;
    const auto second = resolve_event(end, error);
    if (!second) return error;
    for (const auto& event : {first, second}) {
        if (event->capture) return refuse_captured(call, *event);
        if ((event->flags & CU_EVENT_DISABLE_TIMING) != 0) {
            return refuse_value(call, "an event that keeps no time");
        }
        if (!event->record) {
            return refuse("event-not-recorded", call.function, CUDA_ERROR_INVALID_HANDLE);
        }
    }
    if (!is_done(*first) || !is_done(*second)) return CUDA_ERROR_NOT_READY;
    const auto from = static_cast<double>(first->record->end_ns);
    *milliseconds = static_cast<float>((static_cast<double>(second->record->end_ns) - from) / 1e6);
    return CUDA_SUCCESS;
}

}  // namespace

FROSTLINE_EXPORTED CUresult CUDAAPI cuEventCreate(CUevent* event, unsigned flags) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (event == nullptr) return refuse_value(call, "event is null");
        const unsigned known =
            CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
        const bool timed = (flags & CU_EVENT_DISABLE_TIMING) == 0;
        if ((flags & ~known) != 0 || ((flags & CU_EVENT_INTERPROCESS) != 0 && timed)) {
            return refuse_value(call, "flags");
        }
        auto made = std::make_shared<Event>();
        made->context = call.context;
        made->device = call.context->device;
        made->flags = flags;
        const std::uint64_t handle = driver().events.add(made);
        made->handle = reinterpret_cast<CUevent>(handle);
        call.context->events.insert(handle);
        *event = made->handle;
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuEventDestroy(CUevent event) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call&) -> CUresult {
        CUresult error = CUDA_SUCCESS;
        const auto found = resolve_event(event, error);
        if (!found) return error;
        const auto number = reinterpret_cast<std::uint64_t>(event);
        driver().events.remove(number);
        if (const auto context = found->context.lock()) context->events.erase(number);
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuEventRecord(CUevent event, CUstream stream) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return record(self, event, stream, 0);
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuEventRecordWithFlags(CUevent event, CUstream stream,
                                                           unsigned flags) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return record(self, event, stream, flags);
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuEventQuery(CUevent event) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::unsafe);
    return self.call([&](Call& call) -> CUresult {
        CUresult error = CUDA_SUCCESS;
        const auto found = resolve_event(event, error);
        if (!found) return error;
        if (found->capture) return refuse_captured(call, *found);
        if (!is_done(*found)) return CUDA_ERROR_NOT_READY;
        return broken(*found);
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuEventSynchronize(CUevent event) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::unsafe);
    return self.call([&](Call& call) -> CUresult {
        CUresult error = CUDA_SUCCESS;
        const auto found = resolve_event(event, error);
        if (!found) return error;
        if (found->capture) return refuse_captured(call, *found);
        wait_for(call.lock, std::shared_ptr<Operation>(found->record));
        return broken(*found);
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuEventElapsedTime_v2(float* milliseconds, CUevent start,
                                                          CUevent end) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::unsafe);
    return self.call([&](Call& call) { return elapsed(call, milliseconds, start, end); });
}

// The form of before CUDA 12.8 has the name without a suffix, which cuda.h redirects.
#undef cuEventElapsedTime
FROSTLINE_EXPORTED CUresult CUDAAPI cuEventElapsedTime(float* milliseconds, CUevent start,
                                                       CUevent end) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::unsafe);
    return self.call([&](Call& call) { return elapsed(call, milliseconds, start, end); });
}
