// The driver's answers, copied into plain values.
#include "bindings/gpu_info.h"

#include "tiers/cuda_driver.h"

#include <cstdlib>
#include <utility>

namespace frostline {

std::string cuda_driver_library() {
    const char* const chosen = std::getenv("FROSTLINE_CUDA_DRIVER");
    return chosen != nullptr && *chosen != '\0' ? chosen : "libcuda.so.1";
}

Result<GpuInfo> gpu_info() {
    FROSTLINE_TRY(const CudaDriver driver, CudaDriver::load(cuda_driver_library()));
    GpuInfo info;
    FROSTLINE_TRY(info.driver_version, driver.version());
    FROSTLINE_TRY(auto devices, driver.devices());
    for (CudaDevice& device : devices) {
        info.gpus.push_back({std::move(device.name), device.memory_bytes});
    }
    return info;
}

int cuda_header_version() noexcept {
    return CudaDriver::header_version();
}

}  // namespace frostline
