// Proves what a device tier does where it ends: at a budget of all there is, without addresses,
// with peers that cannot reach it, and with memory that the driver does not let go of.
#include "tests/tiers/allocation_faults.h"
#include "tests/tiers/emulated_gpu.h"
#include "tests/tiers/tier_specimen.h"
#include "tiers/device_tier.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace frostline {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kMemory = 64 * kMiB;

class DeviceTierLimits : public testing::Test {
   protected:
    std::unique_ptr<DeviceTier> tier(std::uint64_t capacity_bytes = kMemory,
                                     const HostRegistration* registered = nullptr) {
        auto made = DeviceTier::create({.context = gpu_->context(),
                                        .capacity_bytes = capacity_bytes,
                                        .registered = registered});
        if (!made) {
            ADD_FAILURE() << made.error().message();
            std::abort();
        }
        return *std::move(made);
    }
    // What the driver did not take back is reported at its end, as it should be.
    void expect_leak() {
        EXPECT_EQ(gpu_->misuse(), "");
        gpu_->restart("");
        EXPECT_NE(gpu_->misuse().find("leak-at-exit"), std::string::npos);
        gpu_->clear_misuse();
    }

    EmulatedGpu gpu_{"memory=64MiB,devices=2"};
};

TEST_F(DeviceTierLimits, TheBudgetMayBeAllOfTheDeviceAndIsUsedToTheLastByte) {
    const auto tier = this->tier();
    const auto all = tier->reserve(kMemory);
    ASSERT_TRUE(all.has_value()) << all.error().message();
    EXPECT_EQ(tier->reserve(1).error().code(), Errc::no_space);
    tier->release(*all);
}

TEST_F(DeviceTierLimits, ABudgetIsRoundedDownToWhatTheDeviceHandsOut) {
    const auto tier = this->tier(5 * kMiB + 1);
    EXPECT_EQ(tier->info().capacity_bytes, 4 * kMiB);
    const auto all = tier->reserve(4 * kMiB);
    ASSERT_TRUE(all.has_value()) << all.error().message();
    tier->release(*all);
}

TEST_F(DeviceTierLimits, SizesThatAreNoneOrMoreThanThereAreAddressesAreRefused) {
    const auto tier = this->tier();
    EXPECT_EQ(tier->reserve_addresses(0).error().code(), Errc::invalid_argument);
    for (const std::uint64_t size : {UINT64_MAX, UINT64_MAX - kMiB, 4 * kMemory + 1}) {
        const auto refused = tier->reserve_addresses(size);
        ASSERT_FALSE(refused.has_value()) << size;
        EXPECT_EQ(refused.error().code(), Errc::no_space);
        EXPECT_NE(std::string(refused.error().message()).find("do not fit"), std::string::npos);
    }
    const auto all = tier->reserve_addresses(4 * kMemory);
    ASSERT_TRUE(all.has_value()) << all.error().message();
    tier->release(*all);
}

TEST_F(DeviceTierLimits, FewerAddressesDoWhereTheyAreScarce) {
    for (unsigned refusals = 0; refusals <= 2; ++refusals) {
        for (unsigned nth = 1; nth <= refusals; ++nth) {
            gpu_->plant_fault("cuMemAddressReserve", nth, CUDA_ERROR_OUT_OF_MEMORY);
        }
        const std::uint64_t before = gpu_->calls("cuMemAddressReserve");
        const auto tier = this->tier();
        EXPECT_EQ(gpu_->calls("cuMemAddressReserve") - before, refusals + 1);
        const std::uint64_t addresses = (4 * kMemory) >> refusals;
        EXPECT_FALSE(tier->reserve_addresses(addresses + 1).has_value());
        const auto all = tier->reserve_addresses(addresses);
        ASSERT_TRUE(all.has_value()) << all.error().message();
        tier->release(*all);
        const auto extent = tier->reserve(kMemory);
        ASSERT_TRUE(extent.has_value()) << extent.error().message();
        tier->release(*extent);
    }
    for (unsigned nth = 1; nth <= 3; ++nth) {
        gpu_->plant_fault("cuMemAddressReserve", nth, CUDA_ERROR_OUT_OF_MEMORY);
    }
    const auto none = DeviceTier::create({.context = gpu_->context(), .capacity_bytes = kMemory});
    ASSERT_FALSE(none.has_value());
    EXPECT_EQ(none.error().code(), Errc::no_space);
    EXPECT_EQ(gpu_->calls("cuMemAddressFree"), 3U) << "of the tiers that had some";
}

TEST_F(DeviceTierLimits, APeerThatCannotReachTheMemoryIsRefusedByName) {
    gpu_->restart("memory=64MiB,devices=2,peer=0");
    const auto made =
        DeviceTier::create({.context = gpu_->context(), .capacity_bytes = kMemory, .peers = {1}});
    ASSERT_FALSE(made.has_value());
    EXPECT_EQ(made.error().code(), Errc::invalid_argument);
    EXPECT_NE(std::string(made.error().message()).find("GPU 1 cannot reach"), std::string::npos);
}

TEST_F(DeviceTierLimits, ItsCardSaysWhetherHostMemoryIsReached) {
    EXPECT_NE(tier()->info().fallback.find("not pinned"), std::string::npos);
    EXPECT_EQ(tier(kMemory, &gpu_->registration())->info().fallback, "");
    gpu_->restart("");  // and with it that registration
}

TEST_F(DeviceTierLimits, WhatWasLostHasNeitherMemoryNorAddressesAgain) {
    auto tier = this->tier();
    const auto lost = tier->reserve(4 * kMiB);
    gpu_->plant_fault("cuMemUnmap", 1, CUDA_ERROR_UNKNOWN);
    EXPECT_EQ(tier->unback(*lost).error().code(), Errc::io);
    EXPECT_EQ(tier->kept_bytes(), 0U) << "no other extent may be given that memory";
    const auto again = tier->back(*lost);
    ASSERT_FALSE(again.has_value());
    EXPECT_EQ(again.error().code(), Errc::closed);
    EXPECT_NE(std::string(again.error().message()).find("lost"), std::string::npos);
    EXPECT_EQ(tier->unback(*lost).error().code(), Errc::not_found);
    tier->release(*lost);
    // Every other address can be had, and none of these.
    std::uint64_t bytes = 0;
    while (const auto each = tier->reserve_addresses(2 * kMiB)) {
        EXPECT_FALSE(each->offset >= lost->offset && each->offset < lost->offset + 4 * kMiB);
        bytes += 2 * kMiB;
    }
    EXPECT_EQ(bytes, 4 * kMemory - 4 * kMiB);
    tier.reset();
    expect_leak();
}

TEST_F(DeviceTierLimits, ACopyThatFailsIsAnErrorAndItsPartsHaveEnded) {
    gpu_->restart("memory=64MiB,d2h_bytes_per_s=50MiB,h2d_bytes_per_s=50MiB");
    const auto pins =
        *HostRegistration::create({.context = gpu_->context(), .chunk_bytes = 2 * kMiB});
    const auto tier = this->tier(kMemory, pins.get());
    const auto extent = tier->reserve(4 * kMiB);
    struct Aligned {
        alignas(kPageBytes) std::array<std::byte, 4 * kMiB> bytes;
    };
    const auto host = std::make_unique<Aligned>();
    for (const char* function : {"cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync"}) {
        const bool reads = std::string(function) == "cuMemcpyDtoHAsync";
        const auto move = [&] {
            return reads ? tier->read(*extent, 0, host->bytes)
                         : tier->write(*extent, 0, host->bytes);
        };
        ASSERT_TRUE(pins->add(host->bytes).has_value());
        // The first of two pieces has been started by then.
        gpu_->plant_fault(function, 2, CUDA_ERROR_UNKNOWN);
        EXPECT_FALSE(move().has_value());
        // Memory that a copy still uses is reported when it is unregistered.
        ASSERT_TRUE(pins->remove(host->bytes).has_value());
        // A wait that fails is asked for again.
        gpu_->plant_fault("cuStreamSynchronize", 1, CUDA_ERROR_UNKNOWN);
        gpu_->plant_fault("cuStreamSynchronize", 2, CUDA_ERROR_UNKNOWN);
        EXPECT_FALSE(move().has_value()) << function;
        EXPECT_TRUE(move().has_value()) << "and waits for what was not waited for";
    }
    tier->release(*extent);
}

// Between two threads this is a race; here the driver itself asks for it midway.
class DeviceTierLimitsDeathTest : public DeviceTierLimits {
   protected:
    void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
    inline static DeviceTier* changing_tier = nullptr;
    inline static Extent changing;
};

TEST_F(DeviceTierLimitsDeathTest, ReleasingWhatIsBeingBackedEndsTheProgram) {
    EXPECT_DEATH(
        {
            CudaDriver driver = gpu_->driver();
            driver.cuMemMap = [](CUdeviceptr, std::size_t, std::size_t,
                                 CUmemGenericAllocationHandle, unsigned long long) {
                changing_tier->release(changing);
                return CUDA_SUCCESS;
            };
            const auto tier = *DeviceTier::create(
                {.context = *CudaContext::create(driver, 0), .capacity_bytes = kMemory});
            changing_tier = tier.get();
            changing = *tier->reserve_addresses(kMiB);
            (void)tier->back(changing);
        },
        "broken invariant.*while it changes");
}

}  // namespace
}  // namespace frostline
