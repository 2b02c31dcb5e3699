// Proves that whichever call of the driver fails, and whichever time, it ends in an error or is
// absorbed: no byte is lost, no pin is left, nothing is misused, nothing hangs, and the same
// manager works afterwards, or a fresh one where the device tier had to close.
#include "bindings/manager.h"
#include "tests/bindings/environment.h"
#include "tests/bindings/fault_scenario.h"
#include "tests/tiers/emulated_gpu.h"
#include "tests/tiers/scratch_folder.h"
#include "tiers/cuda_functions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace frostline {
namespace {

constexpr std::uint64_t kKi = 1024;

constexpr auto kFunctions = std::to_array<std::string_view>({
#define FROSTLINE_NAME_OF(function, version, feature) #function,
    FROSTLINE_CUDA_FUNCTIONS(FROSTLINE_NAME_OF)
#undef FROSTLINE_NAME_OF
});

// For programs that use the table themselves; no manager calls them.
constexpr auto kNotOfManagers = std::to_array<std::string_view>(
    {"cuDriverGetVersion", "cuCtxGetCurrent", "cuMemGetInfo", "cuMemAlloc", "cuMemFree",
     "cuDeviceCanAccessPeer", "cuMemsetD8Async", "cuModuleLoad", "cuModuleUnload",
     "cuModuleGetFunction", "cuLaunchKernel"});

// Managers call these when the driver registers nothing; one fault among many is not that.
constexpr auto kWithoutRegistration =
    std::to_array<std::string_view>({"cuMemHostAlloc", "cuMemFreeHost"});

// The scenario's streams are default streams, of which nobody asks whose they are.
constexpr auto kOfOtherStreams =
    std::to_array<std::string_view>({"cuStreamGetCtx", "cuCtxGetDevice"});

// What the driver refuses to take back it keeps: nobody can do more than not to use it again. The
// context has to be pushed for each such call.
constexpr auto kGivingBack = std::to_array<std::string_view>(
    {"cuDevicePrimaryCtxRelease", "cuCtxPushCurrent", "cuMemHostUnregister", "cuMemFreeHost",
     "cuMemAddressFree", "cuMemRelease", "cuMemUnmap", "cuStreamDestroy", "cuEventDestroy",
     "cuThreadExchangeStreamCaptureMode"});

// Without a device tier, copies between a framework's memory and pinned DRAM meet these.
constexpr auto kOfHostMemory = std::to_array<std::string_view>(
    {"cuCtxPushCurrent", "cuPointerGetAttributes", "cuMemHostRegister", "cuMemHostUnregister",
     "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuStreamCreate", "cuStreamWaitEvent",
     "cuEventCreate", "cuEventDestroy", "cuEventRecord", "cuEventQuery"});

template <std::size_t size>
bool is_one_of(const std::array<std::string_view, size>& names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

struct Case {
    std::string_view function;
    CUresult result;
    bool on_device = true;

    std::string name() const {
        return std::string(function) + (result == CUDA_ERROR_OUT_OF_MEMORY ? "NoMemory" : "") +
               (on_device ? "" : "HostMemory");
    }
    // With a device tier streams are waited for only if they are not faster; where a GPU is matters
    // on machines with several nodes.
    bool must_strike() const {
        return !is_one_of(kNotOfManagers, function) && !is_one_of(kWithoutRegistration, function) &&
               !is_one_of(kOfOtherStreams, function) && function != "cuDeviceGetPCIBusId" &&
               (function != "cuStreamWaitEvent" || !on_device);
    }
};

std::ostream& operator<<(std::ostream& out, const Case& fault) {
    return out << fault.name();
}

class DriverFaultsTest : public testing::TestWithParam<Case> {
   protected:
    const char* function() const { return GetParam().function.data(); }

    ManagerOptions options() const {
        ManagerOptions options{.dram_bytes = 128 * kKi,
                               .pmem_path = folder_->file("pmem"),
                               .pmem_bytes = 1024 * kKi,
                               .swap_places = {folder_->path()},
                               .swap_bytes = 4096 * kKi,
                               .pin = true,
                               .verify = true,
                               .calibrate = false};
        if (GetParam().on_device) options.device_bytes = 128 * kKi;
        return options;
    }

    // Opens again if need be.
    Manager open(std::vector<std::string>& errors) const {
        auto manager = Manager::open(options());
        if (!manager) {
            errors.emplace_back(manager.error().message());
            manager = Manager::open(options());
        }
        if (!manager) {
            ADD_FAILURE() << manager.error().message();
            std::abort();
        }
        return *std::move(manager);
    }

    void expect_works(Manager& manager) const {
        FaultScenario again(GetParam().on_device);
        again.run(manager);
        EXPECT_TRUE(again.errors().empty()) << again.errors().front();
    }

    // Returns whether the fault struck.
    bool run_with_fault(unsigned nth) {
        FaultScenario scenario(GetParam().on_device);
        std::vector<std::string> errors;
        const std::uint64_t before = (*gpu_)->calls(function());
        (*gpu_)->plant_fault(function(), nth, GetParam().result);
        std::optional<Manager> manager(open(errors));
        scenario.run(*manager);
        bool struck = (*gpu_)->calls(function()) >= before + nth;
        errors.insert(errors.end(), scenario.errors().begin(), scenario.errors().end());
        if (!errors.empty()) {
            EXPECT_TRUE(struck) << "nothing had failed, but " << errors.front();
        }
        const bool closed = !manager->stats().tiers[0].open;
        if (!closed && !scenario.given_up().empty()) {
            ADD_FAILURE() << "one fault, and for ever: " << scenario.given_up().front();
        }
        if (struck && !closed) expect_works(*manager);
        EXPECT_TRUE(manager->close().has_value());
        manager.reset();
        struck = (*gpu_)->calls(function()) >= before + nth;
        if (struck) {
            scenario.expect_own_context();
            if (closed) {
                Manager fresh = open(errors);
                expect_works(fresh);
            }
        }
        return struck;
    }

    void expect_well_used() const {
        EXPECT_EQ((*gpu_)->misuse(), "");
        if (!is_one_of(kGivingBack, GetParam().function)) return;
        (*gpu_)->restart("");
        const std::string reports = (*gpu_)->misuse();
        for (std::size_t at = 0; at < reports.size(); at = reports.find('\n', at) + 1) {
            EXPECT_EQ(reports.compare(at, 12, "leak-at-exit"), 0) << reports.substr(at);
        }
        (*gpu_)->clear_misuse();
    }

    EnvironmentVariable driver_{"FROSTLINE_CUDA_DRIVER", FROSTLINE_EMULATOR};
    std::optional<ScratchFolder> folder_;
    std::optional<EmulatedGpu> gpu_;
};

TEST_P(DriverFaultsTest, EachEndsInAnErrorOrIsAbsorbed) {
    // Calls that are made hundreds of times would take minutes where code is instrumented.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    const auto after = [](unsigned nth) { return nth < 12 ? nth + 1 : nth + 9; };
#else
    const auto after = [](unsigned nth) { return nth + 1; };
#endif
    for (unsigned nth = 1;; nth = after(nth)) {
        SCOPED_TRACE(std::string(function()) + " number " + std::to_string(nth));
        folder_.emplace(ScratchFolder::On::memory);
        gpu_.emplace("memory=16MiB,devices=2,granularity=4KiB,jitter_us=20,seed=" +
                     std::to_string(nth));
        const bool struck = run_with_fault(nth);
        expect_well_used();
        gpu_.reset();
        if (HasFailure()) return;
        if (!struck) {
            const bool called = nth > 1;
            EXPECT_TRUE(called || !GetParam().must_strike()) << "it is never called";
            EXPECT_FALSE(called && is_one_of(kNotOfManagers, GetParam().function));
            return;
        }
    }
}

// It is called only when something else has failed.
TEST(DriverFaults, AnErrorWhoseNameCannotBeHadIsToldAllTheSame) {
    const EmulatedGpu gpu;
    gpu->plant_fault("cuGetErrorName", 1, CUDA_ERROR_UNKNOWN);
    const Result<void> failed = gpu->driver().check("cuMemMap", CUDA_ERROR_UNKNOWN);
    ASSERT_FALSE(failed.has_value());
    EXPECT_STREQ(failed.error().message(), "cuMemMap failed: an error without a name (999)");
}

std::vector<Case> cases() {
    std::vector<Case> all;
    for (const std::string_view function : kFunctions) {
        // No manager waits for a whole context; the scenario itself does, at its end.
        if (function == "cuGetErrorName" || function == "cuCtxSynchronize") continue;
        all.push_back({function, CUDA_ERROR_UNKNOWN});
        if (is_one_of(kOfHostMemory, function))
            all.push_back({function, CUDA_ERROR_UNKNOWN, false});
        if (function.starts_with("cuMem")) all.push_back({function, CUDA_ERROR_OUT_OF_MEMORY});
    }
    return all;
}

INSTANTIATE_TEST_SUITE_P(Calls, DriverFaultsTest, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace frostline
