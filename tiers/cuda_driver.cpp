// Resolution: cuGetProcAddress knows every form that a function ever had; its own two forms, and
// libraries that have neither, are found by their symbols.
#include "tiers/cuda_driver.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdlib>

namespace frostline {
namespace {

// Its form before CUDA 12, which cuda.h does not declare any more.
using OldGetProcAddress = CUresult (*)(const char*, void**, int, cuuint64_t);

class Resolver {
   public:
    explicit Resolver(void* library)
        : library_(library),
          new_(
              reinterpret_cast<decltype(&cuGetProcAddress)>(dlsym(library, "cuGetProcAddress_v2"))),
          old_(reinterpret_cast<OldGetProcAddress>(dlsym(library, "cuGetProcAddress"))) {}

    void* find(const char* name, const char* symbol, int version) const {
        void* function = nullptr;
        CUresult result = CUDA_ERROR_NOT_FOUND;
        if (new_ != nullptr) {
            CUdriverProcAddressQueryResult why{};
            result = new_(name, &function, version, CU_GET_PROC_ADDRESS_DEFAULT, &why);
        } else if (old_ != nullptr) {
            result = old_(name, &function, version, CU_GET_PROC_ADDRESS_DEFAULT);
        }
        if (result == CUDA_SUCCESS && function != nullptr) return function;
        return dlsym(library_, symbol);
    }

   private:
    void* library_;
    decltype(&cuGetProcAddress) new_;
    OldGetProcAddress old_;
};

Error no_function(const char* name) {
    return Error(Errc::unsupported, 0, "the CUDA driver has no function {}; install a newer one",
                 name);
}

}  // namespace

std::string CudaDriver::library_from_environment() {
    const char* const chosen = std::getenv("FROSTLINE_CUDA_DRIVER");
    return chosen != nullptr && *chosen != '\0' ? chosen : "libcuda.so.1";
}

Result<CudaDriver> CudaDriver::load(const std::string& library) {
    void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        return Error(Errc::not_found, 0,
                     "no CUDA driver: {}: install one, or name another library in "
                     "FROSTLINE_CUDA_DRIVER, such as the emulated driver, which is installed as "
                     "lib/frostline/libfrostline_emulator.so",
                     dlerror());
    }
    CudaDriver driver;
    driver.resolve(handle);
    if (!driver.need({CudaFeature::devices})) {
        return Error(Errc::unsupported, 0,
                     "{} is no CUDA driver, or one of before CUDA 6: set FROSTLINE_CUDA_DRIVER to "
                     "another, or unset it",
                     library);
    }
    const CUresult started = driver.cuInit(0);
    // What initialises answers so in one case only.
    if (started == CUDA_ERROR_NOT_INITIALIZED) {
        return Error(Errc::unsupported, 0,
                     "the CUDA driver does not work in a process forked from one that uses it: "
                     "leave out what is for a GPU here (device, gpu, pin), or start this process "
                     "by exec (in Python: multiprocessing's \"spawn\")");
    }
    FROSTLINE_TRY_VOID(driver.check("cuInit", started));
    return driver;
}

void CudaDriver::resolve(void* library) {
    const Resolver resolver(library);
// The symbol has the suffix that cuda.h's macro gives the name; the name has none.
#define FROSTLINE_SYMBOL(function) #function
#define FROSTLINE_RESOLVE(function, version, feature)                              \
    CudaFunctions::function = reinterpret_cast<decltype(CudaFunctions::function)>( \
        resolver.find(#function, FROSTLINE_SYMBOL(function), version));
    FROSTLINE_CUDA_FUNCTIONS(FROSTLINE_RESOLVE)
#undef FROSTLINE_RESOLVE
#undef FROSTLINE_SYMBOL
    if (dlsym(library, "frostline_emulator_restart") != nullptr) label_ = Label::emulated;
}

Result<void> CudaDriver::need(std::initializer_list<CudaFeature> features) const {
    const auto wanted = [&](CudaFeature feature) {
        return std::find(features.begin(), features.end(), feature) != features.end();
    };
#define FROSTLINE_NEED(function, version, feature)                            \
    if (CudaFunctions::function == nullptr && wanted(CudaFeature::feature)) { \
        return no_function(#function);                                        \
    }
    FROSTLINE_CUDA_FUNCTIONS(FROSTLINE_NEED)
#undef FROSTLINE_NEED
    return ok();
}

Result<int> CudaDriver::version() const {
    int version = 0;
    FROSTLINE_TRY_VOID(check("cuDriverGetVersion", cuDriverGetVersion(&version)));
    return version;
}

Result<std::vector<CudaDevice>> CudaDriver::devices() const {
    int count = 0;
    FROSTLINE_TRY_VOID(check("cuDeviceGetCount", cuDeviceGetCount(&count)));
    std::vector<CudaDevice> devices;
    for (int i = 0; i < count; ++i) {
        CUdevice device = 0;
        std::array<char, 256> name{};
        std::size_t bytes = 0;
        FROSTLINE_TRY_VOID(check("cuDeviceGet", cuDeviceGet(&device, i)));
        FROSTLINE_TRY_VOID(
            check("cuDeviceGetName",
                  cuDeviceGetName(name.data(), static_cast<int>(name.size()), device)));
        FROSTLINE_TRY_VOID(check("cuDeviceTotalMem", cuDeviceTotalMem(&bytes, device)));
        devices.push_back({name.data(), bytes});
    }
    return devices;
}

Result<void> CudaDriver::check(const char* function, CUresult result) const noexcept {
    if (result == CUDA_SUCCESS) return ok();
    const char* text = nullptr;
    if (cuGetErrorName == nullptr || cuGetErrorName(result, &text) != CUDA_SUCCESS ||
        text == nullptr) {
        text = "an error without a name";
    }
    Errc code = Errc::io;
    if (result == CUDA_ERROR_OUT_OF_MEMORY) code = Errc::no_space;
    if (result == CUDA_ERROR_NOT_SUPPORTED) code = Errc::unsupported;
    return Error(code, 0, "{} failed: {} ({})", function, text, static_cast<int>(result));
}

int CudaDriver::header_version() noexcept {
    return CUDA_VERSION;
}

}  // namespace frostline
