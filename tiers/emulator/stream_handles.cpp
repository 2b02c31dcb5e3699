// From a handle to a stream: the special handles depend on the context and the thread that ask.
#include "tiers/emulator/exported.h"

namespace frostline::emulator {
namespace {

std::shared_ptr<Stream> thread_stream(const std::shared_ptr<Context>& context) {
    auto& stream = context->thread_streams[std::this_thread::get_id()];
    if (!stream) {
        stream = std::make_shared<Stream>();
        stream->id = driver().next_id++;
        stream->context = context;
        stream->device = context->device;
        stream->handle = CU_STREAM_PER_THREAD;
    }
    return stream;
}

}  // namespace

std::shared_ptr<Stream> resolve_stream(const std::shared_ptr<Context>& context, CUstream handle,
                                       CUresult& error) {
    if (handle == nullptr && null_stream_is_per_thread()) handle = CU_STREAM_PER_THREAD;
    if (handle == nullptr || handle == CU_STREAM_LEGACY) return context->legacy_stream;
    if (handle == CU_STREAM_PER_THREAD) return thread_stream(context);
    const auto number = reinterpret_cast<std::uint64_t>(handle);
    auto stream = driver().streams.find(number);
    if (!stream) {
        const bool destroyed = driver().streams.state(number) == HandleState::destroyed;
        error = refuse(destroyed ? "destroyed-handle" : "bad-handle",
                       fmt::format("stream {:#x}", number), CUDA_ERROR_INVALID_HANDLE);
    }
    return stream;
}

}  // namespace frostline::emulator
