// A fixture for tests of the emulated driver: started anew for each test, with the primary context
// of device 0 current. At its end every report of misuse has to have been named by the test, and
// nothing may have leaked.
#pragma once

#include <cuda.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <future>
#include <string>
#include <vector>

#include "tiers/emulator/emulator.h"

namespace frostline::emulator_test {

#define ASSERT_CUDA_OK(call) ASSERT_EQ(call, CUDA_SUCCESS)
#define EXPECT_CUDA_OK(call) EXPECT_EQ(call, CUDA_SUCCESS)

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kGranule = 2 * kMiB;

/// The text before the colon of every report since the last restart or clearing.
inline std::vector<std::string> reported_names() {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < frostline_emulator_misuse_count(); ++i) {
        const std::string report = frostline_emulator_misuse(i);
        names.push_back(report.substr(0, report.find(':')));
    }
    return names;
}

class DriverTest : public ::testing::Test {
   protected:
    void SetUp() override { start("memory=64MiB"); }

    void TearDown() override {
        EXPECT_THAT(reported_names(), ::testing::IsEmpty());
        if (context_ != nullptr) {
            EXPECT_CUDA_OK(cuDevicePrimaryCtxRelease(0));
        }
        frostline_emulator_restart("");
        EXPECT_THAT(reported_names(), ::testing::IsEmpty()) << "leaks";
    }

    /// Starts anew with these settings; whatever the test had is gone.
    void start(const char* settings) {
        if (context_ != nullptr) {
            EXPECT_CUDA_OK(cuDevicePrimaryCtxRelease(0));
        }
        context_ = nullptr;
        ASSERT_EQ(frostline_emulator_restart(settings), 0);
        ASSERT_CUDA_OK(cuInit(0));
        ASSERT_CUDA_OK(cuDevicePrimaryCtxRetain(&context_, 0));
        ASSERT_CUDA_OK(cuCtxSetCurrent(context_));
    }

    /// Checks that exactly these were reported, in this order, and forgets them.
    static void expect_misuse(const std::vector<std::string>& names) {
        EXPECT_EQ(reported_names(), names);
        frostline_emulator_clear_misuse();
    }

    static CUmemAllocationProp on_device(int device) {
        CUmemAllocationProp properties{};
        properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        properties.location.id = device;
        return properties;
    }

    static CUmemGenericAllocationHandle create(std::size_t bytes, int device = 0) {
        CUmemGenericAllocationHandle handle = 0;
        const CUmemAllocationProp properties = on_device(device);
        EXPECT_CUDA_OK(cuMemCreate(&handle, bytes, &properties, 0));
        return handle;
    }

    static CUdeviceptr reserve(std::size_t bytes) {
        CUdeviceptr address = 0;
        EXPECT_CUDA_OK(cuMemAddressReserve(&address, bytes, 0, 0, 0));
        return address;
    }

    static CUresult set_access(CUdeviceptr address, std::size_t bytes, int device = 0,
                               CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
        CUmemAccessDesc description{};
        description.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        description.location.id = device;
        description.flags = flags;
        return cuMemSetAccess(address, bytes, &description, 1);
    }

    static CUdeviceptr allocate(std::size_t bytes) {
        CUdeviceptr address = 0;
        EXPECT_CUDA_OK(cuMemAlloc(&address, bytes));
        return address;
    }

    static CUstream stream(unsigned flags = CU_STREAM_NON_BLOCKING) {
        CUstream made = nullptr;
        EXPECT_CUDA_OK(cuStreamCreate(&made, flags));
        return made;
    }

    static CUevent event(unsigned flags = CU_EVENT_DEFAULT) {
        CUevent made = nullptr;
        EXPECT_CUDA_OK(cuEventCreate(&made, flags));
        return made;
    }

    static std::byte* pinned(std::size_t bytes) {
        void* address = nullptr;
        EXPECT_CUDA_OK(cuMemAllocHost(&address, bytes));
        return static_cast<std::byte*>(address);
    }

    /// The bytes of device memory, copied to ordinary memory.
    static std::vector<unsigned char> read(CUdeviceptr address, std::size_t bytes) {
        std::vector<unsigned char> result(bytes);
        EXPECT_CUDA_OK(cuMemcpyDtoH(result.data(), address, bytes));
        return result;
    }

    CUcontext context_ = nullptr;
};

/// A host function that holds a stream up until the test lets it go.
class Gate {
   public:
    /// The stream waits here.
    void close(CUstream stream) {
        EXPECT_CUDA_OK(cuLaunchHostFunc(
            stream, [](void* gate) { static_cast<Gate*>(gate)->wait(); }, this));
    }
    void open() { opened_.set_value(); }

   private:
    void wait() { opened_.get_future().wait(); }
    std::promise<void> opened_;
};

}  // namespace frostline::emulator_test
