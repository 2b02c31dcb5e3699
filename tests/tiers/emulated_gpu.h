// The emulated driver, one for each process, and what tests do with it: restart it with settings of
// their own, plant faults, and see whether it was misused.
#pragma once

#include "tiers/cuda_context.h"
#include "tiers/cuda_driver.h"
#include "tiers/emulator/emulator.h"
#include "tiers/host_registration.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace frostline {

/// Thread-compatible.
class Emulator {
   public:
    static Emulator& get() {
        static Emulator emulator;
        return emulator;
    }
    Emulator(const Emulator&) = delete;
    Emulator& operator=(const Emulator&) = delete;

    /// Ends what there is and starts anew; nothing of it may be in use any more.
    void restart(const std::string& settings) {
        registration_.reset();
        EXPECT_EQ(restart_(settings.c_str()), 0) << settings;
        settings_ = settings;
        driver_ = load();
    }
    /// The same only if other settings are in force; allocates nothing otherwise, because memory
    /// may be made to run out just now.
    void ensure(std::string_view settings) {
        if (settings_ != settings) restart(std::string(settings));
    }

    const CudaDriver& driver() const { return *driver_; }
    std::shared_ptr<CudaContext> context(int device = 0) const {
        auto made = CudaContext::create(*driver_, device);
        if (!made) {
            ADD_FAILURE() << made.error().message();
            std::abort();
        }
        return *std::move(made);
    }
    /// A registration that lasts until the next restart.
    HostRegistration& registration() {
        if (registration_ == nullptr) {
            registration_ = *HostRegistration::create({.context = context()});
        }
        return *registration_;
    }

    std::uint64_t calls(const char* function) const { return calls_(function); }
    void plant_fault(const char* function, unsigned nth, CUresult result) const {
        EXPECT_EQ(plant_fault_(function, nth, result), 0) << function;
    }
    void limit_registration(std::size_t bytes) const { limit_registration_(bytes); }
    /// All reports of misuse, each on a line.
    std::string misuse() const {
        std::string all;
        for (std::size_t i = 0; i < misuse_count_(); ++i) all += std::string(misuse_(i)) + '\n';
        return all;
    }
    void clear_misuse() const { clear_misuse_(); }
    std::vector<frostline_emulator_operation> timeline() const {
        std::vector<frostline_emulator_operation> all(timeline_(nullptr, 0));
        all.resize(std::min(all.size(), timeline_(all.data(), all.size())));
        return all;
    }

   private:
    Emulator() {
        void* const library = dlopen(FROSTLINE_EMULATOR, RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) {
            ADD_FAILURE() << dlerror();
            std::abort();
        }
        find(library, "frostline_emulator_restart", restart_);
        find(library, "frostline_emulator_plant_fault", plant_fault_);
        find(library, "frostline_emulator_calls", calls_);
        find(library, "frostline_emulator_misuse_count", misuse_count_);
        find(library, "frostline_emulator_misuse", misuse_);
        find(library, "frostline_emulator_clear_misuse", clear_misuse_);
        find(library, "frostline_emulator_limit_registration", limit_registration_);
        find(library, "frostline_emulator_timeline", timeline_);
        driver_ = load();
    }
    template <class Function>
    static void find(void* library, const char* name, Function*& function) {
        function = reinterpret_cast<Function*>(dlsym(library, name));
        if (function == nullptr) ADD_FAILURE() << "the emulator has no " << name;
    }
    static std::unique_ptr<CudaDriver> load() {
        auto driver = CudaDriver::load(FROSTLINE_EMULATOR);
        if (!driver) {
            ADD_FAILURE() << driver.error().message();
            std::abort();
        }
        return std::make_unique<CudaDriver>(*std::move(driver));
    }

    decltype(frostline_emulator_restart)* restart_ = nullptr;
    decltype(frostline_emulator_plant_fault)* plant_fault_ = nullptr;
    decltype(frostline_emulator_calls)* calls_ = nullptr;
    decltype(frostline_emulator_misuse_count)* misuse_count_ = nullptr;
    decltype(frostline_emulator_misuse)* misuse_ = nullptr;
    decltype(frostline_emulator_clear_misuse)* clear_misuse_ = nullptr;
    decltype(frostline_emulator_limit_registration)* limit_registration_ = nullptr;
    decltype(frostline_emulator_timeline)* timeline_ = nullptr;
    std::string settings_;
    std::unique_ptr<CudaDriver> driver_;
    std::unique_ptr<HostRegistration> registration_;
};

/// A test's own emulated machine: fresh when it begins; when it ends nothing may be left, and
/// nothing may have been misused.
class EmulatedGpu {
   public:
    explicit EmulatedGpu(const std::string& settings = "") { emulator_.restart(settings); }
    EmulatedGpu(const EmulatedGpu&) = delete;
    EmulatedGpu& operator=(const EmulatedGpu&) = delete;
    ~EmulatedGpu() {
        const std::string before_the_end = emulator_.misuse();
        emulator_.restart("");  // which reports what was leaked
        EXPECT_EQ(before_the_end + emulator_.misuse(), "");
    }

    Emulator* operator->() const { return &emulator_; }

   private:
    Emulator& emulator_ = Emulator::get();
};

}  // namespace frostline
