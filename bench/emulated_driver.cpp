// Loading the emulator and restarting it.
#include "bench/emulated_driver.h"

#include "bench/media.h"
#include "tiers/emulator/emulator.h"

#include <dlfcn.h>

#include <stdexcept>

namespace frostline::bench {

CudaDriver emulated_driver(const std::string& settings) {
    void* const library = dlopen(FROSTLINE_EMULATOR, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw std::runtime_error(dlerror());
    const auto restart = reinterpret_cast<decltype(&frostline_emulator_restart)>(
        dlsym(library, "frostline_emulator_restart"));
    if (restart == nullptr || restart(settings.c_str()) != 0) {
        throw std::runtime_error("the emulated driver does not start with " + settings);
    }
    return expect(CudaDriver::load(FROSTLINE_EMULATOR));
}

}  // namespace frostline::bench
