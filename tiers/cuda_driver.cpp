// Resolution by name, with the version suffixes that cuda.h's macros stand for.
#include "tiers/cuda_driver.h"

#include <dlfcn.h>

#include <array>

namespace frostline {
namespace {

Error no_function(const char* name) {
    return Error(Errc::unsupported, 0, "the CUDA driver has no function {}; install a newer one",
                 name);
}

template <class Function>
Result<void> resolve(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (function == nullptr) return no_function(name);
    return ok();
}

// For what is only needed by some; keeps the name of one that is missing.
template <class Function>
void resolve_if_there(void* library, const char* name, Function& function, const char*& missing) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (function == nullptr) missing = name;
}

Error cuda_error(const char* function, CUresult result) {
    return Error(result == CUDA_ERROR_OUT_OF_MEMORY ? Errc::out_of_memory : Errc::unsupported, 0,
                 "{} failed with CUDA error {}", function, static_cast<int>(result));
}

Result<void> checked(const char* function, CUresult result) {
    if (result != CUDA_SUCCESS) return cuda_error(function, result);
    return ok();
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
    const auto optional = [&](const char* name, auto& function) {
        resolve_if_there(handle, name, function, driver.without_);
    };
    optional("cuDevicePrimaryCtxRetain", driver.primary_context_retain_);
    optional("cuDevicePrimaryCtxRelease_v2", driver.primary_context_release_);
    optional("cuCtxPushCurrent_v2", driver.context_push_);
    optional("cuCtxPopCurrent_v2", driver.context_pop_);
    optional("cuThreadExchangeStreamCaptureMode", driver.exchange_capture_mode_);
    optional("cuMemHostRegister_v2", driver.host_register_);
    optional("cuMemHostUnregister", driver.host_unregister_);
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

Result<void> CudaDriver::can_register_host_memory() const {
    if (without_ != nullptr) return no_function(without_);
    return ok();
}

Result<CUcontext> CudaDriver::retain_primary_context(int device) const {
    CUdevice handle = 0;
    CUcontext context = nullptr;
    FROSTLINE_TRY_VOID(checked("cuDeviceGet", device_get_(&handle, device)));
    FROSTLINE_TRY_VOID(
        checked("cuDevicePrimaryCtxRetain", primary_context_retain_(&context, handle)));
    return context;
}

void CudaDriver::release_primary_context(int device) const noexcept {
    CUdevice handle = 0;
    if (device_get_(&handle, device) == CUDA_SUCCESS) (void)primary_context_release_(handle);
}

template <class Call>
Result<void> CudaDriver::in_context(CUcontext context, Call&& call) const noexcept {
    FROSTLINE_TRY_VOID(checked("cuCtxPushCurrent", context_push_(context)));
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    (void)exchange_capture_mode_(&mode);  // mode is the thread's own from here on
    const Result<void> done = call();
    (void)exchange_capture_mode_(&mode);
    CUcontext popped = nullptr;
    (void)context_pop_(&popped);
    return done;
}

Result<void> CudaDriver::register_host_memory(CUcontext context,
                                              std::span<std::byte> memory) const noexcept {
    return in_context(context, [&] {
        return checked("cuMemHostRegister",
                       host_register_(memory.data(), memory.size(), CU_MEMHOSTREGISTER_PORTABLE));
    });
}

Result<void> CudaDriver::unregister_host_memory(CUcontext context,
                                                std::span<std::byte> memory) const noexcept {
    return in_context(
        context, [&] { return checked("cuMemHostUnregister", host_unregister_(memory.data())); });
}

int CudaDriver::header_version() noexcept {
    return CUDA_VERSION;
}

}  // namespace frostline
