// Proves that the staging of a GPU's copies lies in huge pages that the driver knows, that it costs
// no more than is needed, and that it is done without where something is refused.
#include "tiers/staging_pages.h"
#include "tests/tiers/emulated_gpu.h"
#include "tests/tiers/faulty_system_calls.h"
#include "tests/tiers/huge_pages.h"
#include "tiers/device_tier.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

namespace frostline {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class StagingPagesTest : public testing::Test {
   protected:
    StagingPages staging() const {
        return StagingPages({.context = gpu_->context(),
                             .buffers = 5,
                             .buffer_bytes = kMiB,
                             .calls = &faulty_system_calls()});
    }
    bool known_to_the_driver(const std::byte* memory) const {
        unsigned type = 0;
        CUpointer_attribute asked = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
        void* answer = &type;
        const auto address = reinterpret_cast<CUdeviceptr>(memory);
        const CudaDriver& driver = gpu_->driver();
        EXPECT_TRUE(gpu_->context()->run([&] {
            return driver.check("cuPointerGetAttributes",
                                driver.cuPointerGetAttributes(1, &asked, &answer, address));
        }));
        return type == CU_MEMORYTYPE_HOST;
    }
    std::uint64_t calls(const char* function) const { return gpu_->calls(function); }

    EmulatedGpu gpu_{"memory=16MiB"};
};

TEST_F(StagingPagesTest, TheDevicesQueueStagesInHugePages) {
    const auto device =
        *DeviceTier::create({.context = gpu_->context(), .capacity_bytes = 4 * kMiB});
    const auto queue = *device->open_queue();
    const std::span<std::byte> buffer = *queue->staging(0);
    std::memset(buffer.data(), 1, buffer.size());
    expect_huge_pages(buffer.data());
}

TEST_F(StagingPagesTest, AHugePageIsRegisteredWhenItIsFirstNeeded) {
    StagingPages staging = this->staging();
    EXPECT_EQ(calls("cuMemHostRegister"), 0U);
    const std::span<std::byte> first = *staging.buffer(0);
    const std::span<std::byte> second = *staging.buffer(1);
    EXPECT_EQ(calls("cuMemHostRegister"), 1U) << "they share a page";
    const std::span<std::byte> last = *staging.buffer(4);
    EXPECT_EQ(calls("cuMemHostRegister"), 2U);
    EXPECT_EQ(staging.buffer(4)->data(), last.data());
    EXPECT_EQ(calls("cuMemHostRegister"), 2U);
    EXPECT_EQ(second.data(), first.data() + kMiB);
    for (const std::span<std::byte> each : {first, second, last}) {
        EXPECT_EQ(each.size(), kMiB);
        EXPECT_TRUE(known_to_the_driver(each.data()));
        EXPECT_TRUE(known_to_the_driver(&each.back()));
    }
}

TEST_F(StagingPagesTest, ADriverThatRegistersNothingAllocatesThem) {
    gpu_->limit_registration(kMiB);
    StagingPages staging = this->staging();
    const std::span<std::byte> first = *staging.buffer(0);
    const std::span<std::byte> second = *staging.buffer(1);
    EXPECT_EQ(calls("cuMemHostAlloc"), 1U);
    EXPECT_EQ(second.data(), first.data() + kMiB);
    EXPECT_TRUE(known_to_the_driver(&second.back()));
    gpu_->limit_registration(0);
    EXPECT_TRUE(known_to_the_driver(staging.buffer(2)->data()));
    EXPECT_EQ(calls("cuMemHostAlloc"), 1U) << "it is asked for each page";
}

TEST_F(StagingPagesTest, AfterARefusalTheNextTrySucceeds) {
    StagingPages staging = this->staging();
    gpu_->plant_fault("cuMemHostRegister", 1, CUDA_ERROR_OUT_OF_MEMORY);
    gpu_->plant_fault("cuMemHostAlloc", 1, CUDA_ERROR_OUT_OF_MEMORY);
    const auto refused = staging.buffer(3);
    ASSERT_FALSE(refused.has_value());
    EXPECT_NE(std::string(refused.error().message()).find("cuMemHostAlloc"), std::string::npos);
    EXPECT_TRUE(known_to_the_driver(staging.buffer(3)->data()));
}

TEST_F(StagingPagesTest, WithoutAddressesThereIsAnErrorAndTheNextTrySucceeds) {
    StagingPages staging = this->staging();
    {
        const FaultInjection fault({.call = Call::mmap, .error = ENOMEM});
        EXPECT_EQ(staging.buffer(0).error().code(), Errc::out_of_memory);
    }
    EXPECT_TRUE(known_to_the_driver(staging.buffer(0)->data()));
}

TEST_F(StagingPagesTest, AKernelWithoutHugePagesGivesSmallOnes) {
    StagingPages staging = this->staging();
    const FaultInjection fault({.call = Call::madvise, .error = EINVAL});
    EXPECT_TRUE(known_to_the_driver(staging.buffer(0)->data()));
    EXPECT_EQ(fault.injected(), 1U);
}

TEST_F(StagingPagesTest, WhatTheDriverDoesNotLetGoOfStaysMapped) {
    const auto context = gpu_->context();  // which outlives the staging
    std::byte* memory = nullptr;
    {
        StagingPages staging = this->staging();
        memory = staging.buffer(0)->data();
        gpu_->plant_fault("cuMemHostUnregister", 1, CUDA_ERROR_UNKNOWN);
    }
    EXPECT_TRUE(known_to_the_driver(memory));
    EXPECT_EQ(::msync(memory, kMiB, MS_ASYNC), 0) << "it is unmapped";
    const CudaDriver& driver = gpu_->driver();
    EXPECT_TRUE(gpu_->context()->run(
        [&] { return driver.check("cuMemHostUnregister", driver.cuMemHostUnregister(memory)); }));
}

}  // namespace
}  // namespace frostline
