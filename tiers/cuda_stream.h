// Streams and events of one device, made and destroyed with its context current.
#pragma once

#include "tiers/cuda_context.h"
#include "tiers/result.h"

#include <memory>
#include <utility>

namespace frostline {

/// Marks a point in a stream's work. Movable; for one thread at a time, but for done() and
/// synchronize().
class CudaEvent {
   public:
    /// Errors: the driver's.
    static Result<CudaEvent> create(std::shared_ptr<const CudaContext> context) noexcept;
    CudaEvent(CudaEvent&& other) noexcept
        : context_(std::move(other.context_)), event_(std::exchange(other.event_, nullptr)) {}
    CudaEvent& operator=(CudaEvent&& other) noexcept;
    ~CudaEvent();

    const CudaContext& context() const noexcept { return *context_; }
    CUevent handle() const noexcept { return event_; }

    /// Marks the end of what the stream, which may be any of the device's, has been given so far.
    Result<void> record(CUstream stream) const noexcept;
    /// Whether the work before the mark has ended.
    Result<bool> done() const noexcept;
    /// Waits until it has.
    Result<void> synchronize() const noexcept;

   private:
    CudaEvent(std::shared_ptr<const CudaContext> context, CUevent event) noexcept
        : context_(std::move(context)), event_(event) {}

    std::shared_ptr<const CudaContext> context_;
    CUevent event_ = nullptr;
};

/// A stream that has no part in the legacy default stream's implicit order. Movable; usable from
/// any thread. Its end waits for nothing: the work that it still has goes on.
class CudaStream {
   public:
    /// Errors: the driver's.
    static Result<CudaStream> create(std::shared_ptr<const CudaContext> context) noexcept;
    CudaStream(CudaStream&& other) noexcept
        : context_(std::move(other.context_)), stream_(std::exchange(other.stream_, nullptr)) {}
    CudaStream& operator=(CudaStream&& other) noexcept;
    ~CudaStream();

    const CudaContext& context() const noexcept { return *context_; }
    CUstream handle() const noexcept { return stream_; }

    /// What it is given from now on waits for the event's mark.
    Result<void> wait(const CudaEvent& event) const noexcept;
    /// Waits for all that it was given.
    Result<void> synchronize() const noexcept;

   private:
    CudaStream(std::shared_ptr<const CudaContext> context, CUstream stream) noexcept
        : context_(std::move(context)), stream_(stream) {}

    std::shared_ptr<const CudaContext> context_;
    CUstream stream_ = nullptr;
};

/// The same for a stream that is somebody else's, of the context's device; the event may be of
/// another one.
Result<void> wait_for(const CudaContext& context, CUstream stream, const CudaEvent& event) noexcept;
Result<void> synchronize(const CudaContext& context, CUstream stream) noexcept;

/// The GPU that a stream, which is somebody else's, was made for; the default streams are those of
/// the context's. Errors: invalid_argument (there is no such stream), the driver's.
Result<int> gpu_of_stream(const CudaContext& context, CUstream stream) noexcept;

}  // namespace frostline
