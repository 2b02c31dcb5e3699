// The primary context is shared with the program and its framework; it is retained, never made.
#include "tiers/cuda_context.h"

#include <array>
#include <new>

namespace frostline {
namespace {

Error no_memory(int device) noexcept {
    return Error(Errc::out_of_memory, 0, "no memory to use GPU {}", device);
}

}  // namespace

Result<std::shared_ptr<CudaContext>> CudaContext::create(const CudaDriver& driver,
                                                         int device) noexcept {
    FROSTLINE_TRY_VOID(driver.need({CudaFeature::contexts}));
    int count = 0;
    FROSTLINE_TRY_VOID(driver.check("cuDeviceGetCount", driver.cuDeviceGetCount(&count)));
    if (device < 0 || device >= count) {
        return Error(Errc::invalid_argument, 0, "there is no GPU {}: the driver has {}", device,
                     count);
    }
    CUdevice handle = 0;
    CUcontext context = nullptr;
    FROSTLINE_TRY_VOID(driver.check("cuDeviceGet", driver.cuDeviceGet(&handle, device)));
    FROSTLINE_TRY_VOID(driver.check("cuDevicePrimaryCtxRetain",
                                    driver.cuDevicePrimaryCtxRetain(&context, handle)));
    auto* const made = new (std::nothrow) CudaContext(driver, device, handle, context);
    if (made == nullptr) {
        (void)driver.cuDevicePrimaryCtxRelease(handle);
        return no_memory(device);
    }
    try {
        return std::shared_ptr<CudaContext>(made);
    } catch (const std::bad_alloc&) {
        return no_memory(device);  // and what was made is gone already
    }
}

CudaContext::~CudaContext() {
    (void)driver_.cuDevicePrimaryCtxRelease(handle_);
}

Result<std::string> CudaContext::pci_address() const {
    std::array<char, 32> text{};
    FROSTLINE_TRY_VOID(driver_.check(
        "cuDeviceGetPCIBusId",
        driver_.cuDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), handle_)));
    std::string address = text.data();
    for (char& each : address) {
        if (each >= 'A' && each <= 'F') each = static_cast<char>(each - 'A' + 'a');
    }
    return address;
}

CudaContext::Scope::Scope(const CudaContext& context) noexcept
    : driver_(context.driver_),
      entered_(driver_.check("cuCtxPushCurrent", driver_.cuCtxPushCurrent(context.context_))) {
    if (!entered_) return;
    // The mode becomes the thread's former one.
    entered_ = driver_.check("cuThreadExchangeStreamCaptureMode",
                             driver_.cuThreadExchangeStreamCaptureMode(&mode_));
    if (!entered_) leave();
}

CudaContext::Scope::~Scope() {
    if (!entered_) return;
    // The thread is the caller's, who could not know that it was changed: a refusal is not taken
    // for an answer at once. What did change the mode has changed what it was given, too.
    if (driver_.cuThreadExchangeStreamCaptureMode(&mode_) != CUDA_SUCCESS &&
        mode_ != CU_STREAM_CAPTURE_MODE_RELAXED) {
        (void)driver_.cuThreadExchangeStreamCaptureMode(&mode_);
    }
    leave();
}

void CudaContext::Scope::leave() noexcept {
    CUcontext popped = nullptr;
    if (driver_.cuCtxPopCurrent(&popped) != CUDA_SUCCESS && popped == nullptr) {
        (void)driver_.cuCtxPopCurrent(&popped);
    }
}

}  // namespace frostline
