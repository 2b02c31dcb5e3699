// The CUDA driver, found at run time: nothing of Frostline links a CUDA library, so that it starts
// on machines that have none. Only types come from the toolkit's cuda.h.
#pragma once

#include "tiers/result.h"

#include <cuda.h>

#include <cstdint>
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

    /// The version of the cuda.h that this was compiled with, in the same form.
    static int header_version() noexcept;

   private:
    CudaDriver() = default;

    decltype(&cuInit) init_ = nullptr;
    decltype(&cuDriverGetVersion) driver_get_version_ = nullptr;
    decltype(&cuDeviceGetCount) device_get_count_ = nullptr;
    decltype(&cuDeviceGet) device_get_ = nullptr;
    decltype(&cuDeviceGetName) device_get_name_ = nullptr;
    decltype(&cuDeviceTotalMem) device_total_mem_ = nullptr;
};

}  // namespace frostline
