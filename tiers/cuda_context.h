// One device's primary context, and calls that are made with it current. Whatever context and
// capture mode the calling thread had, it has them again afterwards; a capture elsewhere in the
// process is not disturbed.
#pragma once

#include "tiers/cuda_driver.h"
#include "tiers/result.h"

#include <memory>
#include <string>
#include <utility>

namespace frostline {

/// Thread-safe. Keeps the primary context alive.
class CudaContext {
   public:
    /// `driver` outlives it. Errors: invalid_argument (no such device, which is counted as CUDA
    /// does), unsupported (the driver lacks functions), the driver's.
    static Result<std::shared_ptr<CudaContext>> create(const CudaDriver& driver,
                                                       int device) noexcept;
    CudaContext(const CudaContext&) = delete;
    CudaContext& operator=(const CudaContext&) = delete;
    ~CudaContext();

    const CudaDriver& driver() const noexcept { return driver_; }
    int device() const noexcept { return device_; }
    CUdevice handle() const noexcept { return handle_; }
    CUcontext context() const noexcept { return context_; }
    /// As "0000:3b:00.0", with small letters as the system writes it. Needs CudaFeature::streams.
    /// Errors: the driver's.
    Result<std::string> pci_address() const;

    /// Current for the life of this object, in a capture mode that allows every call on streams
    /// that capture nothing. For use on one thread, as a local.
    class Scope {
       public:
        explicit Scope(const CudaContext& context) noexcept;
        Scope(const Scope&) = delete;
        Scope& operator=(const Scope&) = delete;
        ~Scope();
        /// The driver's error if it refused; then nothing may be called.
        const Result<void>& entered() const noexcept { return entered_; }

       private:
        void leave() noexcept;

        const CudaDriver& driver_;
        Result<void> entered_;
        CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
    };

    /// Calls with the context current. The call returns what this returns.
    template <class Call>
    Result<void> run(Call&& call) const {
        const Scope scope(*this);
        if (!scope.entered()) return scope.entered();
        return std::forward<Call>(call)();
    }

   private:
    CudaContext(const CudaDriver& driver, int device, CUdevice handle, CUcontext context)
        : driver_(driver), device_(device), handle_(handle), context_(context) {}

    const CudaDriver& driver_;
    int device_;
    CUdevice handle_;
    CUcontext context_;
};

}  // namespace frostline
