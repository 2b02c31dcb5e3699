// Thin: one driver call each, in the context that owns the object; a wait is asked for twice.
#include "tiers/cuda_stream.h"

namespace frostline {
namespace {

// A wait that fails has not waited, and whoever asked for it is about to give up the memory that
// the work uses. So it is asked again: a device that has failed fails again, and works no more.
template <class Wait>
Result<void> wait_in_earnest(const CudaContext& context, const Wait& wait) noexcept {
    const Result<void> waited = context.run(wait);
    return waited ? waited : context.run(wait);
}

}  // namespace

Result<CudaEvent> CudaEvent::create(std::shared_ptr<const CudaContext> context) noexcept {
    const CudaDriver& driver = context->driver();
    CUevent event = nullptr;
    // Blocking, because whoever waits for a copy has nothing to do but leave the CPU to others.
    FROSTLINE_TRY_VOID(context->run([&] {
        return driver.check(
            "cuEventCreate",
            driver.cuEventCreate(&event, CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING));
    }));
    return CudaEvent(std::move(context), event);
}

CudaEvent& CudaEvent::operator=(CudaEvent&& other) noexcept {
    std::swap(context_, other.context_);
    std::swap(event_, other.event_);
    return *this;
}

CudaEvent::~CudaEvent() {
    if (event_ == nullptr) return;
    const CudaDriver& driver = context_->driver();
    (void)context_->run(
        [&] { return driver.check("cuEventDestroy", driver.cuEventDestroy(event_)); });
}

Result<void> CudaEvent::record(CUstream stream) const noexcept {
    const CudaDriver& driver = context_->driver();
    return context_->run(
        [&] { return driver.check("cuEventRecord", driver.cuEventRecord(event_, stream)); });
}

Result<bool> CudaEvent::done() const noexcept {
    const CudaDriver& driver = context_->driver();
    CUresult state = CUDA_ERROR_UNKNOWN;
    FROSTLINE_TRY_VOID(context_->run([&]() -> Result<void> {
        state = driver.cuEventQuery(event_);
        return ok();
    }));
    if (state == CUDA_ERROR_NOT_READY) return false;
    FROSTLINE_TRY_VOID(driver.check("cuEventQuery", state));
    return true;
}

Result<void> CudaEvent::synchronize() const noexcept {
    const CudaDriver& driver = context_->driver();
    return wait_in_earnest(*context_, [&] {
        return driver.check("cuEventSynchronize", driver.cuEventSynchronize(event_));
    });
}

Result<CudaStream> CudaStream::create(std::shared_ptr<const CudaContext> context) noexcept {
    const CudaDriver& driver = context->driver();
    CUstream stream = nullptr;
    FROSTLINE_TRY_VOID(context->run([&] {
        return driver.check("cuStreamCreate",
                            driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    }));
    return CudaStream(std::move(context), stream);
}

CudaStream& CudaStream::operator=(CudaStream&& other) noexcept {
    std::swap(context_, other.context_);
    std::swap(stream_, other.stream_);
    return *this;
}

CudaStream::~CudaStream() {
    if (stream_ == nullptr) return;
    const CudaDriver& driver = context_->driver();
    (void)context_->run(
        [&] { return driver.check("cuStreamDestroy", driver.cuStreamDestroy(stream_)); });
}

Result<void> CudaStream::wait(const CudaEvent& event) const noexcept {
    return wait_for(*context_, stream_, event);
}

Result<void> CudaStream::synchronize() const noexcept {
    return frostline::synchronize(*context_, stream_);
}

Result<void> wait_for(const CudaContext& context, CUstream stream,
                      const CudaEvent& event) noexcept {
    const CudaDriver& driver = context.driver();
    return context.run([&] {
        return driver.check("cuStreamWaitEvent",
                            driver.cuStreamWaitEvent(stream, event.handle(), 0));
    });
}

Result<void> synchronize(const CudaContext& context, CUstream stream) noexcept {
    const CudaDriver& driver = context.driver();
    return wait_in_earnest(context, [&] {
        return driver.check("cuStreamSynchronize", driver.cuStreamSynchronize(stream));
    });
}

Result<int> gpu_of_stream(const CudaContext& context, CUstream stream) noexcept {
    if (stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) {
        return context.device();
    }
    const CudaDriver& driver = context.driver();
    CUcontext owner = nullptr;
    CUdevice device = 0;
    FROSTLINE_TRY_VOID(context.run([&]() -> Result<void> {
        const CUresult found = driver.cuStreamGetCtx(stream, &owner);
        if (found == CUDA_ERROR_INVALID_HANDLE || found == CUDA_ERROR_CONTEXT_IS_DESTROYED) {
            return Error(Errc::invalid_argument, 0,
                         "{} is no stream: it was destroyed, or never created; give one that "
                         "exists, or 0 for the default stream",
                         static_cast<const void*>(stream));
        }
        FROSTLINE_TRY_VOID(driver.check("cuStreamGetCtx", found));
        if (owner == context.context()) {
            device = context.handle();
            return ok();
        }
        FROSTLINE_TRY_VOID(driver.check("cuCtxPushCurrent", driver.cuCtxPushCurrent(owner)));
        const CUresult known = driver.cuCtxGetDevice(&device);
        (void)driver.cuCtxPopCurrent(&owner);
        return driver.check("cuCtxGetDevice", known);
    }));
    // A CUdevice is the ordinal that CUDA counts by, in all its versions.
    return device == context.handle() ? context.device() : static_cast<int>(device);
}

}  // namespace frostline
