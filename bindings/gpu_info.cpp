// The driver's answers, copied into plain values.
#include "bindings/gpu_info.h"

#include "tiers/cuda_driver.h"

#include <utility>

namespace frostline {

Result<GpuInfo> gpu_info() {
    FROSTLINE_TRY(const CudaDriver driver, CudaDriver::load());
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
