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

/// A function of the emulated driver that programs call and Frostline does not. cuda.h's macros
/// give both the type and the name their suffixes.
#define FROSTLINE_SYMBOL_NAME(name) #name
#define FROSTLINE_EMULATED(name) \
    (::frostline::Emulator::get().symbol<decltype(&::name)>(FROSTLINE_SYMBOL_NAME(name)))

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

    template <class Function>
    Function symbol(const char* name) const {
        auto* const found = reinterpret_cast<Function>(dlsym(library_, name));
        if (found == nullptr) ADD_FAILURE() << "the emulator has no " << name;
        return found;
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
        if (library_ == nullptr) {
            ADD_FAILURE() << dlerror();
            std::abort();
        }
        restart_ = symbol<decltype(restart_)>("frostline_emulator_restart");
        plant_fault_ = symbol<decltype(plant_fault_)>("frostline_emulator_plant_fault");
        calls_ = symbol<decltype(calls_)>("frostline_emulator_calls");
        misuse_count_ = symbol<decltype(misuse_count_)>("frostline_emulator_misuse_count");
        misuse_ = symbol<decltype(misuse_)>("frostline_emulator_misuse");
        clear_misuse_ = symbol<decltype(clear_misuse_)>("frostline_emulator_clear_misuse");
        limit_registration_ =
            symbol<decltype(limit_registration_)>("frostline_emulator_limit_registration");
        timeline_ = symbol<decltype(timeline_)>("frostline_emulator_timeline");
        driver_ = load();
    }
    static std::unique_ptr<CudaDriver> load() {
        auto driver = CudaDriver::load(FROSTLINE_EMULATOR);
        if (!driver) {
            ADD_FAILURE() << driver.error().message();
            std::abort();
        }
        return std::make_unique<CudaDriver>(*std::move(driver));
    }

    void* library_ = dlopen(FROSTLINE_EMULATOR, RTLD_NOW | RTLD_LOCAL);
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
