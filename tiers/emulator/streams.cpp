// Streams as a program sees them. A destroyed stream still carries out what it was given.
#include <algorithm>

#include "tiers/emulator/event_handles.h"
#include "tiers/emulator/exported.h"

using namespace frostline::emulator;

namespace {

constexpr int kGreatestPriority = -5;

CUresult create(const Call& call, CUstream* stream, unsigned flags, int priority) {
    if (stream == nullptr) return refuse_value(call, "stream is null");
    if ((flags & ~unsigned{CU_STREAM_NON_BLOCKING}) != 0) return refuse_value(call, "flags");
    auto made = std::make_shared<Stream>();
    made->id = driver().next_id++;
    made->context = call.context;
    made->device = call.context->device;
    made->flags = flags;
    made->priority = std::clamp(priority, kGreatestPriority, 0);
    const std::uint64_t handle = driver().streams.add(made);
    made->handle = reinterpret_cast<CUstream>(handle);
    call.context->streams.insert(handle);
    *stream = made->handle;
    return CUDA_SUCCESS;
}

CUresult broken(const Stream& stream) {
    const auto context = stream.context.lock();
    return context ? context->sticky : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

/// Waiting for, or asking about, a stream that is captured is prohibited and spoils the capture.
CUresult refuse_captured(const Call& call, const Stream& stream) {
    if (!stream.capture) return CUDA_SUCCESS;
    stream.capture->invalidated = true;
    return refuse("illegal-during-capture", call.function, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

/// Runs `body(stream)` for a valid handle.
template <class Body>
CUresult with_stream(Function& self, CUstream handle, Body&& body) {
    return self.call([&](Call& call) -> CUresult {
        CUresult error = CUDA_SUCCESS;
        const auto stream = resolve_stream(call.context, handle, error);
        if (!stream) return error;
        return body(call, stream);
    });
}

}  // namespace

FROSTLINE_EXPORTED CUresult CUDAAPI cuStreamCreate(CUstream* stream, unsigned flags) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call& call) { return create(call, stream, flags, 0); });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuStreamCreateWithPriority(CUstream* stream, unsigned flags,
                                                               int priority) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call& call) { return create(call, stream, flags, priority); });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuStreamDestroy(CUstream handle) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        const auto number = reinterpret_cast<std::uint64_t>(handle);
        const auto stream = driver().streams.find(number);
        if (!stream) {
            const bool destroyed = driver().streams.state(number) == HandleState::destroyed;
            return refuse(destroyed ? "destroyed-handle" : "bad-handle",
                          fmt::format("stream {:#x}", number), CUDA_ERROR_INVALID_HANDLE);
        }
        if (stream->capture) return refuse_captured(call, *stream);
        driver().streams.remove(number);
        if (const auto context = stream->context.lock()) context->streams.erase(number);
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuStreamQuery(CUstream handle) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::unsafe);
    return with_stream(self, handle, [](Call& call, const std::shared_ptr<Stream>& stream) {
        if (stream->capture) return refuse_captured(call, *stream);
        if (const CUresult error = broken(*stream); error != CUDA_SUCCESS) return error;
        return stream->queue.empty() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuStreamSynchronize(CUstream handle) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::unsafe);
    return with_stream(self, handle, [](Call& call, const std::shared_ptr<Stream>& stream) {
        if (stream->capture) return refuse_captured(call, *stream);
        // Waiting for the legacy stream means waiting for what it would wait for.
        if (stream->legacy) {
            wait_legacy(call.lock, call.context);
        } else {
            wait_stream(call.lock, stream);
        }
        return broken(*stream);
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuStreamGetCtx(CUstream handle, CUcontext* context) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return with_stream(self, handle, [&](Call& call, const std::shared_ptr<Stream>& stream) {
        if (context == nullptr) return refuse_value(call, "context is null");
        const auto found = stream->context.lock();
        if (!found) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
        *context = found->handle;
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuStreamGetDevice(CUstream handle, CUdevice* device) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return with_stream(self, handle, [&](Call& call, const std::shared_ptr<Stream>& stream) {
        if (device == nullptr) return refuse_value(call, "device is null");
        *device = stream->device;
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuStreamGetFlags(CUstream handle, unsigned* flags) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return with_stream(self, handle, [&](Call& call, const std::shared_ptr<Stream>& stream) {
        if (flags == nullptr) return refuse_value(call, "flags is null");
        *flags = stream->flags;
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuStreamGetPriority(CUstream handle, int* priority) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return with_stream(self, handle, [&](Call& call, const std::shared_ptr<Stream>& stream) {
        if (priority == nullptr) return refuse_value(call, "priority is null");
        *priority = stream->priority;
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuStreamGetId(CUstream handle, unsigned long long* id) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return with_stream(self, handle, [&](Call& call, const std::shared_ptr<Stream>& stream) {
        if (id == nullptr) return refuse_value(call, "id is null");
        *id = stream->id;
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuStreamWaitEvent(CUstream handle, CUevent event,
                                                      unsigned flags) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return with_stream(self, handle, [&](Call& call, const std::shared_ptr<Stream>& stream) {
        if ((flags & ~unsigned{CU_EVENT_WAIT_EXTERNAL}) != 0) return refuse_value(call, "flags");
        CUresult error = CUDA_SUCCESS;
        const auto found = resolve_event(event, error);
        if (!found) return error;
        return stream_wait_event(stream, found);
    });
}
