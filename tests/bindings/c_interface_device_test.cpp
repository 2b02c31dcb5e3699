// Proves that the C interface does for device memory what the manager does, and refuses what it
// cannot use.
#include "frostline/frostline.h"
#include "tests/bindings/environment.h"
#include "tests/bindings/framework.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>

extern "C" int use_device_functions(void* source, void* target, size_t size_bytes, void* stream);

namespace frostline {
namespace {

constexpr std::size_t kMi = std::size_t{1} << 20;

class CDeviceInterface : public testing::Test {
   protected:
    static frostline_context* open() {
        const std::array<const char*, 4> options{"dram=8MiB", "pin=1", "calibrate=0", nullptr};
        frostline_context* context = nullptr;
        EXPECT_EQ(frostline_open(options.data(), &context), FROSTLINE_OK);
        return context;
    }
};

class CDeviceInterfaceOnGpu : public CDeviceInterface {
   protected:
    EmulatedGpu gpu_{"memory=64MiB,jitter_us=200"};
    EnvironmentVariable driver_{"FROSTLINE_CUDA_DRIVER", FROSTLINE_EMULATOR};
    Framework framework_;
    CUstream stream_ = framework_.stream();
};

TEST_F(CDeviceInterfaceOnGpu, PlainCUsesEveryFunction) {
    const CUdeviceptr source = Framework::tensor(kMi, 5, stream_);
    const CUdeviceptr target = Framework::tensor(kMi, 0xee, stream_);
    EXPECT_EQ(use_device_functions(reinterpret_cast<void*>(source), reinterpret_cast<void*>(target),
                                   kMi, stream_),
              0)
        << "at that line of c_interface.c: " << frostline_last_error();
    EXPECT_TRUE(Framework::holds(target, kMi, 5, stream_));
    Framework::free(source, stream_);
    Framework::free(target, stream_);
}

TEST_F(CDeviceInterfaceOnGpu, NullIsRefusedEverywhere) {
    frostline_context* const context = open();
    const CUdeviceptr memory = Framework::tensor(kMi, 5, stream_);
    auto* const data = reinterpret_cast<void*>(memory);
    frostline_id id = 0;
    frostline_id other = 0;
    int read = 0;
    ASSERT_EQ(frostline_put_device(context, data, kMi, stream_, 0, &id), FROSTLINE_OK);
    auto* pinned = reinterpret_cast<frostline_pinned*>(1);
    const frostline_status all[] = {
        frostline_put_device(nullptr, data, kMi, stream_, 0, &other),
        frostline_put_device(context, nullptr, kMi, stream_, 0, &other),
        frostline_put_device(context, data, kMi, stream_, 0, nullptr),
        frostline_put_device(context, data, 0, stream_, 0, &other),
        frostline_release_source(nullptr, id, stream_),
        frostline_source_read(nullptr, id, &read),
        frostline_source_read(context, id, nullptr),
        frostline_get_device(nullptr, id, data, kMi, stream_),
        frostline_get_device(context, id, nullptr, kMi, stream_),
        frostline_get_device(context, id, data, kMi - 1, stream_),
        frostline_allocate(nullptr, kMi, &other, &pinned),
        frostline_allocate(context, kMi, nullptr, &pinned),
        frostline_allocate(context, kMi, &other, nullptr),
        frostline_allocate(context, 0, &other, &pinned),
    };
    for (std::size_t i = 0; i < std::size(all); ++i) {
        EXPECT_EQ(all[i], FROSTLINE_INVALID_ARGUMENT) << "call " << i;
    }
    EXPECT_EQ(pinned, nullptr);
    EXPECT_EQ(other, 0U);
    EXPECT_EQ(frostline_close(context), FROSTLINE_OK) << frostline_last_error();
    Framework::free(memory, stream_);
}

// Closing does not depend on whether a copy happens to have ended.
TEST_F(CDeviceInterfaceOnGpu, ACopyUnderWayKeepsNoContextOpen) {
    frostline_context* const context = open();
    const CUdeviceptr memory = Framework::tensor(kMi, 5, stream_);
    frostline_id id = 0;
    ASSERT_EQ(frostline_put_device(context, reinterpret_cast<void*>(memory), kMi, stream_, 1, &id),
              FROSTLINE_OK);
    EXPECT_EQ(frostline_close(context), FROSTLINE_OK) << frostline_last_error();
    Framework::free(memory, stream_);
}

TEST_F(CDeviceInterface, WithoutADriverItIsAnErrorThatSaysSo) {
    const EnvironmentVariable driver("FROSTLINE_CUDA_DRIVER", "/no/such/driver.so");
    frostline_context* const context = open();  // DRAM is not pinned, then
    std::array<char, 64> data{};
    frostline_id id = 0;
    EXPECT_NE(frostline_put_device(context, data.data(), data.size(), nullptr, 0, &id),
              FROSTLINE_OK);
    EXPECT_NE(std::strstr(frostline_last_error(), "/no/such/driver.so"), nullptr)
        << frostline_last_error();
    EXPECT_EQ(frostline_close(context), FROSTLINE_OK);
}

}  // namespace
}  // namespace frostline
