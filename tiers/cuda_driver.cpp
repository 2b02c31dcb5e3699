// Resolution by name, with the version suffixes that cuda.h's macros stand for.
#include "tiers/cuda_driver.h"

#include <dlfcn.h>

#include <array>

namespace frostline {
namespace {

template <class Function>
Result<void> resolve(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (function == nullptr) {
        return Error(Errc::unsupported, 0,
                     "the CUDA driver has no function {}; install a newer one", name);
    }
    return ok();
}

Error cuda_error(const char* function, CUresult result) {
    return Error(Errc::unsupported, 0, "{} failed with CUDA error {}", function,
                 static_cast<int>(result));
}

}  // namespace

Result<CudaDriver> CudaDriver::load(const std::string& library) {
    void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        return Error(Errc::not_found, 0, "no CUDA driver: {}", dlerror());
    }
    CudaDriver driver;
    FROSTLINE_TRY_VOID(resolve(handle, "cuInit", driver.init_));
    FROSTLINE_TRY_VOID(resolve(handle, "cuDriverGetVersion", driver.driver_get_version_));
    FROSTLINE_TRY_VOID(resolve(handle, "cuDeviceGetCount", driver.device_get_count_));
    FROSTLINE_TRY_VOID(resolve(handle, "cuDeviceGet", driver.device_get_));
    FROSTLINE_TRY_VOID(resolve(handle, "cuDeviceGetName", driver.device_get_name_));
    FROSTLINE_TRY_VOID(resolve(handle, "cuDeviceTotalMem_v2", driver.device_total_mem_));
    if (const CUresult result = driver.init_(0); result != CUDA_SUCCESS) {
        return cuda_error("cuInit", result);
    }
    return driver;
}

Result<int> CudaDriver::version() const {
    int version = 0;
    if (const CUresult result = driver_get_version_(&version); result != CUDA_SUCCESS) {
        return cuda_error("cuDriverGetVersion", result);
    }
    return version;
}

Result<std::vector<CudaDevice>> CudaDriver::devices() const {
    int count = 0;
    if (const CUresult result = device_get_count_(&count); result != CUDA_SUCCESS) {
        return cuda_error("cuDeviceGetCount", result);
    }
    std::vector<CudaDevice> devices;
    for (int i = 0; i < count; ++i) {
        CUdevice device = 0;
        std::array<char, 256> name{};
        std::size_t bytes = 0;
        CUresult result = device_get_(&device, i);
        if (result == CUDA_SUCCESS) {
            result = device_get_name_(name.data(), static_cast<int>(name.size()), device);
        }
        if (result == CUDA_SUCCESS) result = device_total_mem_(&bytes, device);
        if (result != CUDA_SUCCESS) return cuda_error("reading a CUDA device", result);
        devices.push_back({name.data(), bytes});
    }
    return devices;
}

int CudaDriver::header_version() noexcept {
    return CUDA_VERSION;
}

}  // namespace frostline
