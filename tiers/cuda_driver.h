// The CUDA driver, found at run time: nothing of Frostline links a CUDA library, so that it starts
// on machines that have none. Only types come from the toolkit's cuda.h.
#pragma once

#include "tiers/result.h"

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace frostline {

/// One GPU as the driver names it.
struct CudaDevice {
    std::string name;
    std::uint64_t memory_bytes = 0;
};

/// The driver functions that Frostline calls, resolved from one library. Copyable; valid until the
/// process ends, because the library is never unloaded: the driver keeps threads of its own.
class CudaDriver {
   public:
    /// Loads `library` ("libcuda.so.1", or another one that exports the same functions) and
    /// initialises it. Errors: not_found (no such library: no NVIDIA driver is installed),
    /// unsupported (a function is missing, or the driver refuses to start).
    static Result<CudaDriver> load(const std::string& library = "libcuda.so.1");

    /// As 12040 for CUDA 12.4: the newest CUDA that the driver supports.
    Result<int> version() const;
    Result<std::vector<CudaDevice>> devices() const;

    /// Whether the driver has what the functions below need. Errors: unsupported (names what is
    /// missing); they must not be called then.
    Result<void> can_register_host_memory() const;

    /// The primary context of the `device`-th GPU, which the driver keeps until it was released as
    /// often as it was retained. Errors: unsupported (no such device, or the driver's error).
    Result<CUcontext> retain_primary_context(int device) const;
    void release_primary_context(int device) const noexcept;

    /// Pins whole pages of host memory, so that every GPU copies from and to it by itself. Made
    /// with `context` current and, in case the thread captures a stream, in a mode that lets it;
    /// the caller's own context and mode are back afterwards. Milliseconds for some MiB. Errors:
    /// out_of_memory, unsupported (all else; the text has CUDA's code). The driver's functions
    /// keep no last error: a refusal leaves nothing that a later call would report.
    Result<void> register_host_memory(CUcontext context,
                                      std::span<std::byte> memory) const noexcept;
    /// Undoes it, for exactly the same memory, which no copy may use any longer.
    Result<void> unregister_host_memory(CUcontext context,
                                        std::span<std::byte> memory) const noexcept;

    /// The version of the cuda.h that this was compiled with, in the same form.
    static int header_version() noexcept;

   private:
    CudaDriver() = default;
    template <class Call>
    Result<void> in_context(CUcontext context, Call&& call) const noexcept;

    decltype(&cuInit) init_ = nullptr;
    decltype(&cuDriverGetVersion) driver_get_version_ = nullptr;
    decltype(&cuDeviceGetCount) device_get_count_ = nullptr;
    decltype(&cuDeviceGet) device_get_ = nullptr;
    decltype(&cuDeviceGetName) device_get_name_ = nullptr;
    decltype(&cuDeviceTotalMem) device_total_mem_ = nullptr;
    // These may be absent; without_ then names one of them.
    const char* without_ = nullptr;
    decltype(&cuDevicePrimaryCtxRetain) primary_context_retain_ = nullptr;
    decltype(&cuDevicePrimaryCtxRelease) primary_context_release_ = nullptr;
    decltype(&cuCtxPushCurrent) context_push_ = nullptr;
    decltype(&cuCtxPopCurrent) context_pop_ = nullptr;
    decltype(&cuThreadExchangeStreamCaptureMode) exchange_capture_mode_ = nullptr;
    decltype(&cuMemHostRegister) host_register_ = nullptr;
    decltype(&cuMemHostUnregister) host_unregister_ = nullptr;
};

}  // namespace frostline
