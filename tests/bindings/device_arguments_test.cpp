// Proves that what a program names wrongly is refused with words before anything is started: the
// driver reports nothing, no context breaks, and the same call with the right names works.
#include "bindings/manager.h"
#include "tests/bindings/environment.h"
#include "tests/bindings/framework.h"
#include "tiers/device_tier.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace frostline {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kMi = std::uint64_t{1} << 20;

void* address(CUdeviceptr memory) {
    return reinterpret_cast<void*>(memory);
}

// With a device tier, and without one.
class DeviceArgumentsTest : public testing::TestWithParam<bool> {
   protected:
    static Manager open() {
        ManagerOptions options{.dram_bytes = 16 * kMi, .pin = true, .calibrate = false};
        if (GetParam()) options.device_bytes = 16 * kMi;
        auto manager = Manager::open(options);
        if (!manager) {
            ADD_FAILURE() << manager.error().message();
            std::abort();
        }
        return *std::move(manager);
    }
    template <class Value>
    static void expect_refused(const Result<Value>& result, const std::string& words) {
        ASSERT_FALSE(result.has_value());
        EXPECT_EQ(result.error().code(), Errc::invalid_argument) << result.error().message();
        EXPECT_THAT(result.error().message(), HasSubstr(words));
    }

    EnvironmentVariable driver_{"FROSTLINE_CUDA_DRIVER", FROSTLINE_EMULATOR};
    EmulatedGpu gpu_{"memory=128MiB,devices=2,granularity=64KiB"};
};

TEST_P(DeviceArgumentsTest, AStreamOfAnotherGpuIsRefusedAndBreaksNothing) {
    Framework second(1);
    const CUstream there = second.stream();
    Framework first(0);
    const CUstream here = first.stream();
    Manager manager = open();
    const CUdeviceptr memory = Framework::tensor(kMi, 7, here);
    const std::string words = "the stream is of GPU 1, and the memory of GPU 0";
    expect_refused(manager.put_device(address(memory), kMi, there), words);
    const auto id = manager.put_device(address(memory), kMi, here, DeviceSource::kept);
    ASSERT_TRUE(id.has_value()) << id.error().message();
    expect_refused(manager.get_device(*id, address(memory), kMi, there), words);
    {
        StreamGate gate(here);
        const auto waiting = manager.put_device(address(memory), kMi, here, DeviceSource::kept);
        ASSERT_TRUE(waiting.has_value()) << waiting.error().message();
        // Waiting for an event is possible on any GPU's stream.
        ASSERT_TRUE(manager.release_source(*waiting, there).has_value());
        ASSERT_TRUE(manager.release_source(*waiting, here).has_value());
    }
    Framework::fill(memory, kMi, 0xff, here);
    ASSERT_TRUE(manager.get_device(*id, address(memory), kMi, here).has_value());
    EXPECT_TRUE(Framework::holds(memory, kMi, 7, here));
    Framework::free(memory, here);
    EXPECT_EQ(*manager.pins(), 0U);
}

// Whichever GPU is current: a framework's default stream is that of the tensor's GPU.
TEST_P(DeviceArgumentsTest, DefaultStreamsAreThoseOfTheMemorysGpu) {
    Framework second(1);
    Framework first(0);
    Manager manager = open();
    const CUdeviceptr memory = Framework::tensor(kMi, 5, nullptr);
    second.use();
    const auto id = manager.put_device(address(memory), kMi, nullptr);
    ASSERT_TRUE(id.has_value()) << id.error().message();
    first.use();
    EXPECT_TRUE(Framework::holds(memory, kMi, 5, nullptr));
    Framework::free(memory, nullptr);
}

TEST_P(DeviceArgumentsTest, WhatIsNoStreamAnyMoreIsNamed) {
    Framework framework;
    Manager manager = open();
    CUstream gone = nullptr;
    ASSERT_EQ(FROSTLINE_EMULATED(cuStreamCreate)(&gone, 0), CUDA_SUCCESS);
    ASSERT_EQ(FROSTLINE_EMULATED(cuStreamDestroy)(gone), CUDA_SUCCESS);
    const CUdeviceptr memory = Framework::tensor(kMi, 7, nullptr);
    expect_refused(manager.put_device(address(memory), kMi, gone), "is no stream");
    EXPECT_THAT(gpu_->misuse(), HasSubstr("destroyed-handle")) << "asked for, and so reported";
    gpu_->clear_misuse();
    Framework::free(memory, nullptr);
}

TEST_P(DeviceArgumentsTest, ARangeBeyondItsAllocationIsRefusedWithTheRange) {
    Framework framework;
    const CUstream stream = framework.stream();
    Manager manager = open();
    CUdeviceptr memory = 0;
    ASSERT_EQ(FROSTLINE_EMULATED(cuMemAlloc)(&memory, kMi), CUDA_SUCCESS);
    Framework::fill(memory, kMi, 3, stream);
    const auto id = manager.put_device(address(memory + 16), kMi - 16, stream);
    ASSERT_TRUE(id.has_value()) << id.error().message();
    const std::string range = fmt::format("which is {:#x} to {:#x}", memory, memory + kMi);
    expect_refused(manager.put_device(address(memory + 16), kMi, stream), range);
    expect_refused(manager.put_device(address(memory + 16), ~std::uint64_t{0}, stream), range);
    expect_refused(manager.get_device(*id, address(memory + 17), kMi - 16, stream),
                   "at most " + std::to_string(kMi - 17) + " bytes");
    ASSERT_TRUE(manager.get_device(*id, address(memory), kMi - 16, stream).has_value());
    EXPECT_TRUE(Framework::holds(memory, kMi, 3, stream));
    ASSERT_EQ(FROSTLINE_EMULATED(cuMemFree)(memory), CUDA_SUCCESS);
    EXPECT_EQ(*manager.pins(), 0U);
}

// As an allocator makes that grows its segments.
TEST_P(DeviceArgumentsTest, ATensorMayLieInSeveralMappings) {
    Framework framework;
    const CUstream stream = framework.stream();
    Manager manager = open();
    const DeviceTier::Options options{
        .context = gpu_->context(), .capacity_bytes = 4 * kMi, .chunk_bytes = kMi};
    auto segments = DeviceTier::create(options);
    ASSERT_TRUE(segments.has_value()) << segments.error().message();
    const auto extent = (*segments)->reserve(3 * kMi);
    ASSERT_TRUE(extent.has_value()) << extent.error().message();
    const auto memory = reinterpret_cast<CUdeviceptr>((*segments)->address(*extent));
    Framework::fill(memory, 3 * kMi, 9, stream);
    const auto id = manager.put_device(address(memory), 3 * kMi, stream);
    ASSERT_TRUE(id.has_value()) << id.error().message();
    expect_refused(manager.put_device(address(memory), 3 * kMi + 1, stream),
                   fmt::format("{:#x} to {:#x}", memory, memory + 3 * kMi));
    // The stream waits for the copy, which reads what is about to go.
    ASSERT_EQ(FROSTLINE_EMULATED(cuStreamSynchronize)(stream), CUDA_SUCCESS);
    (*segments)->release(*extent);
}

INSTANTIATE_TEST_SUITE_P(Fastest, DeviceArgumentsTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Device" : "Dram"; });

class ReleaseAfterTest : public testing::Test {
   protected:
    EnvironmentVariable driver_{"FROSTLINE_CUDA_DRIVER", FROSTLINE_EMULATOR};
    EmulatedGpu gpu_{"memory=128MiB,devices=2,granularity=64KiB"};
};

// There is nobody to refuse to: the pin ends with that work, wherever it is.
TEST_F(ReleaseAfterTest, APinEndsWithTheWorkOfAStreamOfAnotherGpu) {
    Framework second(1);
    const CUstream there = second.stream();
    auto manager =
        Manager::open({.device_bytes = 2 * kMi, .dram_bytes = 16 * kMi, .calibrate = false});
    ASSERT_TRUE(manager.has_value()) << manager.error().message();
    auto made = manager->allocate(2 * kMi);
    ASSERT_TRUE(made.has_value()) << made.error().message();
    second.use();
    {
        StreamGate gate(there);
        made->pin.release_after(there);
        EXPECT_FALSE(Framework::is_idle(there)) << "the host did not wait";
    }
    // Has to move, and so waits for the pin.
    const auto next = manager->allocate(2 * kMi);
    ASSERT_TRUE(next.has_value()) << next.error().message();
    EXPECT_TRUE(Framework::is_idle(there));
}

}  // namespace
}  // namespace frostline
