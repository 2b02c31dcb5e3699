// The CUDA driver, found at run time: nothing of Frostline links a CUDA library, so that it starts
// on machines that have none. Only types come from the toolkit's cuda.h.
#pragma once

#include "tiers/cuda_functions.h"
#include "tiers/result.h"
#include "tiers/tier.h"

#include <cuda.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace frostline {

/// One GPU as the driver names it.
struct CudaDevice {
    std::string name;
    std::uint64_t memory_bytes = 0;
};

/// The driver functions, resolved from one library, to be called as in driver.cuMemMap(...).
/// Copyable; valid until the process ends, because the library is never unloaded: the driver keeps
/// threads of its own.
class CudaDriver : public CudaFunctions {
   public:
    /// The library that is meant: what the environment variable FROSTLINE_CUDA_DRIVER names, such
    /// as the emulator, or else libcuda.so.1.
    static std::string library_from_environment();

    /// Loads a library and initialises it. Drivers from CUDA 11.8 on have everything but what
    /// need() reports. Errors: not_found (no such library: no NVIDIA driver is installed),
    /// unsupported (it is no driver, or refuses to start).
    static Result<CudaDriver> load(const std::string& library = library_from_environment());

    /// Whether the driver has what these features need. Errors: unsupported (names what is
    /// missing); functions of such a feature must not be called.
    Result<void> need(std::initializer_list<CudaFeature> features) const;

    /// Whether a library stands in for the driver (see tiers/emulator/).
    Label label() const noexcept { return label_; }

    /// As 12040 for CUDA 12.4: the newest CUDA that the driver supports.
    Result<int> version() const;
    Result<std::vector<CudaDevice>> devices() const;

    /// Ok for CUDA_SUCCESS. Errors: no_space (CUDA_ERROR_OUT_OF_MEMORY), unsupported
    /// (CUDA_ERROR_NOT_SUPPORTED), io (all else). The text has CUDA's own name for it.
    Result<void> check(const char* function, CUresult result) const noexcept;

    /// The version of the cuda.h that this was compiled with, in the same form.
    static int header_version() noexcept;

   private:
    CudaDriver() = default;
    void resolve(void* library);

    Label label_ = Label::real;
};

}  // namespace frostline
