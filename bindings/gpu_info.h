// What can be said of the machine's GPUs without linking CUDA.
#pragma once

#include "bindings/api.h"
#include "tiers/result.h"

#include <cstdint>
#include <string>
#include <vector>

namespace frostline {

struct GpuInfo {
    struct Gpu {
        std::string name;
        std::uint64_t memory_bytes = 0;
    };
    int driver_version = 0;  ///< as 12040 for CUDA 12.4
    std::vector<Gpu> gpus;
};

/// Asks the CUDA driver: the library that the environment variable FROSTLINE_CUDA_DRIVER names, or
/// libcuda.so.1. Errors: not_found (no driver), unsupported (the driver does not start).
FROSTLINE_API Result<GpuInfo> gpu_info();

/// The version of the CUDA headers that the library was built with, in the same form.
FROSTLINE_API int cuda_header_version() noexcept;

}  // namespace frostline
