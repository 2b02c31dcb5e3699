// The GPU whose memory the specimens of device tiers are: the emulated one, or the machine's own.
// There is one for the life of the process, and one registration of host memory with it.
#pragma once

#include "tests/tiers/emulated_gpu.h"
#include "tiers/cuda_context.h"
#include "tiers/cuda_driver.h"
#include "tiers/device_chunks.h"
#include "tiers/host_registration.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <memory>

namespace frostline {

/// Memory for several tiers at once; handles may be as small as other tiers' pages.
inline constexpr const char* kSpecimenMachine = "memory=4GiB,granularity=4KiB";

/// With FROSTLINE_TEST_GPU set, GPU 0 of the driver that programs would use, with the granularity
/// that it has; otherwise the emulated machine above. Thread-compatible.
class SpecimenGpu {
   public:
    static bool is_own() { return std::getenv("FROSTLINE_TEST_GPU") != nullptr; }

    static std::shared_ptr<CudaContext> context() {
        if (is_own()) return own().context;
        Emulator::get().ensure(kSpecimenMachine);
        return Emulator::get().context();
    }
    static HostRegistration& registration() {
        if (is_own()) return *own().registration;
        Emulator::get().ensure(kSpecimenMachine);
        return Emulator::get().registration();
    }
    /// The smallest amount of memory that can be taken.
    static std::uint64_t granularity_bytes() {
        return is_own() ? own().granularity_bytes : std::uint64_t{4} << 10;
    }
    static Label label() { return is_own() ? own().driver->label() : Label::emulated; }

   private:
    struct Own {
        std::unique_ptr<CudaDriver> driver;
        std::shared_ptr<CudaContext> context;
        std::unique_ptr<HostRegistration> registration;
        std::uint64_t granularity_bytes = 0;
    };
    template <class T>
    static T must(Result<T> made) {
        if (!made) {
            ADD_FAILURE() << "FROSTLINE_TEST_GPU: " << made.error().message();
            std::abort();
        }
        return *std::move(made);
    }
    // Never destroyed: the driver may have ended before statics do.
    static Own& own() {
        static Own& gpu = *new Own([] {
            Own made;
            made.driver = std::make_unique<CudaDriver>(must(CudaDriver::load()));
            made.context = must(CudaContext::create(*made.driver, 0));
            made.registration = must(HostRegistration::create({.context = made.context}));
            made.granularity_bytes =
                must(DeviceChunks::create({.context = made.context}))->granularity_bytes();
            return made;
        }());
        return gpu;
    }
};

}  // namespace frostline
