// Proves that physical handles are counted as long as the driver has them, that none is lost when
// memory for the books runs out, and that a device which cannot do this is refused by name.
#include "tiers/device_chunks.h"
#include "tests/tiers/allocation_faults.h"
#include "tests/tiers/emulated_gpu.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace frostline {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class DeviceChunksTest : public testing::Test {
   protected:
    std::unique_ptr<DeviceChunks> chunks(std::uint64_t capacity_bytes) {
        return *DeviceChunks::create(
            {.context = gpu_->context(), .capacity_bytes = capacity_bytes});
    }
    std::uint64_t released() const { return gpu_->calls("cuMemRelease"); }

    EmulatedGpu gpu_{"memory=64MiB"};
};

TEST_F(DeviceChunksTest, TheLargestThatAreKeptGiveWayFirst) {
    const auto chunks = this->chunks(32 * kMiB);
    std::vector<std::vector<DeviceChunk>> taken{*chunks->take(16 * kMiB)};
    for (int i = 0; i < 8; ++i) taken.push_back(*chunks->take(2 * kMiB));
    for (const auto& each : taken) chunks->give(each);
    const auto other = chunks->take(4 * kMiB);
    ASSERT_TRUE(other.has_value()) << other.error().message();
    EXPECT_EQ(released(), 1U) << "one of 16 MiB, and not two of 2";
    EXPECT_EQ(chunks->kept_bytes(), 16 * kMiB);
    chunks->give(*other);
}

TEST_F(DeviceChunksTest, WhatTheDriverDoesNotTakeBackStillCounts) {
    auto chunks = this->chunks(32 * kMiB);
    chunks->give(*chunks->take(32 * kMiB));
    for (const unsigned nth : {1U, 2U}) gpu_->plant_fault("cuMemRelease", nth, CUDA_ERROR_UNKNOWN);
    EXPECT_EQ(chunks->take(18 * kMiB).error().code(), Errc::no_space);
    EXPECT_EQ(chunks->kept_bytes(), 16 * kMiB);
    const auto rest = chunks->take(16 * kMiB);
    ASSERT_TRUE(rest.has_value()) << "a take that failed kept what it had";
    chunks->give(*rest);
    chunks.reset();
    EXPECT_EQ(gpu_->misuse(), "");
    gpu_->restart("");
    EXPECT_NE(gpu_->misuse().find("leak-at-exit"), std::string::npos);
    gpu_->clear_misuse();
}

TEST_F(DeviceChunksTest, AHandleThatCannotBeNotedGoesBackToTheDriver) {
    spare_allocations_of(reinterpret_cast<const void*>(gpu_->driver().cuInit));
    for (std::uint64_t nth = 1; nth < 20; ++nth) {
        const auto chunks = this->chunks(32 * kMiB);
        const auto taken = *chunks->take(30 * kMiB);  // 16 + 8 + 4 + 2
        const std::uint64_t before = released();
        bool struck = false;
        {
            const AllocationFault fault(nth, true);
            chunks->give(taken);
            struck = fault.struck();
        }
        EXPECT_EQ(struck, released() > before);
        const auto all = chunks->take(32 * kMiB);
        ASSERT_TRUE(all.has_value()) << "room was lost: " << all.error().message();
        EXPECT_EQ(chunks->kept_bytes(), 0U);
        chunks->give(*all);
        if (!struck) return;
    }
    ADD_FAILURE() << "giving back allocates without end";
}

TEST_F(DeviceChunksTest, ATakeWithoutMemoryForItsBooksLosesNoHandle) {
    spare_allocations_of(reinterpret_cast<const void*>(gpu_->driver().cuInit));
    for (std::uint64_t nth = 1; nth < 20; ++nth) {
        const auto chunks = this->chunks(32 * kMiB);
        bool struck = false;
        std::vector<DeviceChunk> taken;
        {
            const AllocationFault fault(nth, true);
            if (auto made = chunks->take(30 * kMiB)) taken = *std::move(made);
            struck = fault.struck();
        }
        EXPECT_EQ(taken.empty(), struck);
        chunks->give(taken);
        if (!struck) return;
    }
    ADD_FAILURE() << "taking allocates without end";
}

TEST_F(DeviceChunksTest, ADeviceThatCannotDoItIsRefusedByName) {
    const auto refusal = [](const CudaDriver& driver) -> std::string {
        const std::shared_ptr<CudaContext> context = *CudaContext::create(driver, 0);
        const auto made = DeviceChunks::create({.context = context, .capacity_bytes = kMiB});
        if (made) return "none";
        EXPECT_EQ(made.error().code(), Errc::unsupported);
        return made.error().message();
    };
    CudaDriver without = gpu_->driver();
    without.cuDeviceGetAttribute = [](int* value, CUdevice_attribute, CUdevice) {
        *value = 0;
        return CUDA_SUCCESS;
    };
    EXPECT_NE(refusal(without).find("GPU 0 has no virtual memory"), std::string::npos);
    CudaDriver odd = gpu_->driver();
    odd.cuMemGetAllocationGranularity = [](std::size_t* bytes, const CUmemAllocationProp*,
                                           CUmemAllocationGranularity_flags) {
        *bytes = 3 * kMiB;
        return CUDA_SUCCESS;
    };
    EXPECT_NE(refusal(odd).find("3145728"), std::string::npos);
    CudaDriver old = gpu_->driver();
    old.cuMemCreate = nullptr;
    EXPECT_NE(refusal(old).find("cuMemCreate"), std::string::npos);
}

}  // namespace
}  // namespace frostline
