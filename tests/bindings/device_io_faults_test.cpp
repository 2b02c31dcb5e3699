// Proves that a driver call that fails, whichever it is, ends in an error or in the right bytes,
// with nothing pinned, nothing under way, and the next use working as if nothing had been.
#include "bindings/manager.h"
#include "tests/bindings/environment.h"
#include "tests/bindings/framework.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace frostline {
namespace {

constexpr std::uint64_t kMi = std::uint64_t{1} << 20;

struct Case {
    const char* function;
    bool device_tier;
};

class DeviceIoFaultsTest : public testing::TestWithParam<Case> {
   protected:
    static Manager open() {
        ManagerOptions options{.dram_bytes = 16 * kMi, .pin = true, .calibrate = false};
        if (GetParam().device_tier) options.device_bytes = 16 * kMi;
        auto manager = Manager::open(options);
        if (!manager) {
            ADD_FAILURE() << manager.error().message();
            std::abort();
        }
        return *std::move(manager);
    }
    static void expect_named(const Error& error) {
        const std::string text = error.message();
        EXPECT_NE(text.find(GetParam().function), std::string::npos) << text;
    }
    // Nothing of it calls what the fault is planted in, but through the library.
    static void round_trip(Manager& manager, CUdeviceptr memory, CUdeviceptr target,
                           CUstream stream, CUstream other, bool may_fail) {
        const auto id = manager.put_device(reinterpret_cast<void*>(memory), kMi, stream);
        if (!id) {
            EXPECT_TRUE(may_fail) << id.error().message();
            expect_named(id.error());
            return;
        }
        Framework::fill(memory, kMi, 0xff, stream);
        const auto got = manager.get_device(*id, reinterpret_cast<void*>(target), kMi, other);
        if (got) {
            std::vector<unsigned char> bytes(kMi);
            EXPECT_EQ(FROSTLINE_EMULATED(cuCtxSynchronize)(), CUDA_SUCCESS);
            EXPECT_EQ(FROSTLINE_EMULATED(cuMemcpyDtoH)(bytes.data(), target, kMi), CUDA_SUCCESS);
            EXPECT_EQ(bytes, std::vector<unsigned char>(kMi, 3));
        } else {
            EXPECT_TRUE(may_fail) << got.error().message();
            expect_named(got.error());
        }
        // So that the events of both have been asked for.
        while (!*manager.source_read(*id)) std::this_thread::yield();
        EXPECT_TRUE(manager.drop(*id).has_value());
    }

    EnvironmentVariable driver_{"FROSTLINE_CUDA_DRIVER", FROSTLINE_EMULATOR};
};

TEST_P(DeviceIoFaultsTest, EndInAnErrorAndAnUnharmedState) {
    for (unsigned nth = 1; nth < 60; ++nth) {
        SCOPED_TRACE(nth);
        const EmulatedGpu gpu("memory=128MiB,latency_us=50,jitter_us=200,seed=" +
                              std::to_string(nth));
        Framework framework;
        Manager manager = open();
        const CUstream stream = framework.stream();
        const CUstream other = framework.stream();
        const CUdeviceptr memory = Framework::tensor(kMi, 3, stream);
        const CUdeviceptr target = Framework::tensor(kMi, 0xee, other);
        const std::uint64_t before = gpu->calls(GetParam().function);
        gpu->plant_fault(GetParam().function, nth, CUDA_ERROR_OUT_OF_MEMORY);
        round_trip(manager, memory, target, stream, other, true);
        const bool struck = gpu->calls(GetParam().function) >= before + nth;
        EXPECT_EQ(*manager.pins(), 0U);
        if (struck) {  // once is enough of it
            Framework::fill(memory, kMi, 3, stream);
            round_trip(manager, memory, target, stream, other, false);
        }
        EXPECT_TRUE(manager.close().has_value());
        Framework::free(memory, stream);
        Framework::free(target, other);
        if (!struck) {
            EXPECT_GT(nth, 1U) << GetParam().function << " is never called";
            return;
        }
    }
}

std::vector<Case> cases() {
    std::vector<Case> all;
    for (const bool device_tier : {false, true}) {
        for (const char* function :
             {"cuPointerGetAttributes", "cuMemGetAddressRange", "cuStreamGetCtx",
              "cuStreamIsCapturing", "cuEventCreate", "cuEventRecord", "cuEventQuery"}) {
            all.push_back({function, device_tier});
        }
    }
    for (const char* function : {"cuDevicePrimaryCtxRetain", "cuStreamCreate", "cuStreamWaitEvent",
                                 "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync"}) {
        all.push_back({function, false});
    }
    all.push_back({"cuMemcpyDtoDAsync", true});
    return all;
}

INSTANTIATE_TEST_SUITE_P(Calls, DeviceIoFaultsTest, testing::ValuesIn(cases()),
                         [](const auto& info) {
                             return std::string(info.param.function) +
                                    (info.param.device_tier ? "Device" : "Dram");
                         });

}  // namespace
}  // namespace frostline
