// Proves that device memory behind an address comes and goes whole or not at all, that handles are
// used again, that budget and device are never exceeded, and that the caller's own context is
// untouched. On the emulated driver, which reports whatever is misused.
#include "tiers/device_tier.h"
#include "tests/tiers/allocation_faults.h"
#include "tests/tiers/emulated_gpu.h"
#include "tests/tiers/tier_specimen.h"

#include <gtest/gtest.h>

#include <string>

namespace frostline {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class DeviceTierTest : public testing::Test {
   protected:
    std::unique_ptr<DeviceTier> tier(std::uint64_t capacity_bytes, std::vector<int> peers = {}) {
        auto made = DeviceTier::create({.context = gpu_->context(),
                                        .capacity_bytes = capacity_bytes,
                                        .registered = nullptr,
                                        .peers = std::move(peers)});
        if (!made) {
            ADD_FAILURE() << made.error().message();
            std::abort();
        }
        return *std::move(made);
    }
    std::uint64_t calls(const char* function) const { return gpu_->calls(function); }
    void write(DeviceTier& tier, const Extent& extent, std::byte value) {
        ASSERT_TRUE(tier.write(extent, 0, Bytes(extent.length_bytes, value)).has_value());
    }
    static bool holds(DeviceTier& tier, const Extent& extent, std::byte value) {
        return read_all(tier, extent) == Bytes(extent.length_bytes, value);
    }

    EmulatedGpu gpu_{"memory=256MiB,devices=2,peer=1"};
};

TEST_F(DeviceTierTest, LargeExtentsAreMadeOfLargeChunksAndAccessIsSetOnce) {
    const auto tier = this->tier(128 * kMiB);
    const auto extent = tier->reserve(55 * kMiB);  // 16 + 16 + 16 + 8
    ASSERT_TRUE(extent.has_value()) << extent.error().message();
    EXPECT_EQ(calls("cuMemCreate"), 4U);
    EXPECT_EQ(calls("cuMemMap"), 4U);
    EXPECT_EQ(calls("cuMemSetAccess"), 1U);
    EXPECT_EQ(calls("cuMemAddressReserve"), 1U);
    EXPECT_EQ(tier->usage().used_bytes, 56 * kMiB);
    const auto small = tier->reserve(1);
    EXPECT_EQ(calls("cuMemCreate"), 5U);
    EXPECT_EQ(tier->usage().used_bytes, 58 * kMiB);
    tier->release(*extent);
    tier->release(*small);
    EXPECT_EQ(calls("cuMemUnmap"), 2U) << "one for each extent";
    EXPECT_EQ(calls("cuMemAddressReserve"), 1U);
}

TEST_F(DeviceTierTest, HandlesAreUsedAgainByOtherExtents) {
    const auto tier = this->tier(64 * kMiB);
    const auto first = tier->reserve(20 * kMiB);  // 16 + 4
    tier->release(*first);
    EXPECT_EQ(tier->kept_bytes(), 20 * kMiB);
    const std::uint64_t made = calls("cuMemCreate");
    const auto second = tier->reserve(16 * kMiB);
    const auto third = tier->reserve(3 * kMiB);
    EXPECT_EQ(calls("cuMemCreate"), made);
    EXPECT_EQ(tier->kept_bytes(), 0U);
    EXPECT_EQ(calls("cuMemRelease"), 0U);
    tier->release(*second);
    tier->release(*third);
    tier->trim();
    EXPECT_EQ(tier->kept_bytes(), 0U);
    EXPECT_EQ(calls("cuMemRelease"), 2U);
}

TEST_F(DeviceTierTest, KeptHandlesGiveWayToOtherSizes) {
    const auto tier = this->tier(32 * kMiB);
    std::vector<Extent> small;
    for (int i = 0; i < 16; ++i) small.push_back(*tier->reserve(2 * kMiB));
    EXPECT_EQ(tier->reserve(1).error().code(), Errc::no_space);
    for (const Extent& each : small) tier->release(each);
    const auto large = tier->reserve(32 * kMiB);
    ASSERT_TRUE(large.has_value()) << "kept handles stood in the way";
    EXPECT_EQ(tier->kept_bytes(), 0U);
    tier->release(*large);
}

TEST_F(DeviceTierTest, KeptHandlesGiveWayWhenOthersUseTheDevice) {
    const auto tier = this->tier(200 * kMiB);
    std::vector<Extent> small;
    for (int i = 0; i < 63; ++i) small.push_back(*tier->reserve(2 * kMiB));
    for (const Extent& each : small) tier->release(each);  // and is kept: 126 MiB
    const auto context = gpu_->context();
    CUdeviceptr others = 0;
    const CudaContext::Scope scope(*context);
    ASSERT_EQ(gpu_->driver().cuMemAlloc(&others, 128 * kMiB), CUDA_SUCCESS);
    const auto again = tier->reserve(16 * kMiB);  // the budget has room, the device has none
    ASSERT_TRUE(again.has_value()) << again.error().message();
    tier->release(*again);
    EXPECT_EQ(gpu_->driver().cuMemFree(others), CUDA_SUCCESS);
}

TEST_F(DeviceTierTest, AnAddressStaysWhileMemoryGoesAndComes) {
    const auto tier = this->tier(64 * kMiB);
    const auto stable = tier->reserve_addresses(40 * kMiB);
    ASSERT_TRUE(stable.has_value());
    EXPECT_EQ(tier->usage().used_bytes, 0U);
    const std::byte* const address = tier->address(*stable);
    for (int round = 0; round < 3; ++round) {
        ASSERT_TRUE(tier->back(*stable).has_value());
        EXPECT_EQ(tier->back(*stable).error().code(), Errc::busy);
        EXPECT_EQ(tier->usage().used_bytes, 40 * kMiB);
        EXPECT_EQ(tier->address(*stable), address);
        write(*tier, *stable, static_cast<std::byte>(round + 1));
        EXPECT_TRUE(holds(*tier, *stable, static_cast<std::byte>(round + 1)));
        ASSERT_TRUE(tier->unback(*stable).has_value());
        EXPECT_EQ(tier->unback(*stable).error().code(), Errc::not_found);
        EXPECT_EQ(tier->usage().used_bytes, 0U);
    }
    // Another extent has the room meanwhile, at other addresses.
    const auto other = tier->reserve(64 * kMiB);
    ASSERT_TRUE(other.has_value());
    EXPECT_NE(tier->address(*other), address);
    EXPECT_EQ(tier->back(*stable).error().code(), Errc::no_space);
    EXPECT_EQ(tier->usage().used_bytes, 64 * kMiB);
    tier->release(*other);
    EXPECT_TRUE(tier->back(*stable).has_value());
    tier->release(*stable);
    EXPECT_EQ(tier->usage().used_bytes, 0U);
}

// The all-or-nothing of C05: at whichever call the driver refuses, the caller gets the error, and
// all is as before.
TEST_F(DeviceTierTest, C05_ARefusalMidwayIsRolledBack) {
    const auto tier = this->tier(128 * kMiB);
    const auto kept = tier->reserve(10 * kMiB);
    write(*tier, *kept, std::byte{7});
    for (const char* function : {"cuMemCreate", "cuMemMap", "cuMemSetAccess"}) {
        for (unsigned nth = 1;; ++nth) {
            tier->trim();
            gpu_->plant_fault(function, nth, CUDA_ERROR_OUT_OF_MEMORY);
            const auto extent = tier->reserve(47 * kMiB);  // 16 + 16 + 8 + 4 + 2 + ...
            if (extent) {
                EXPECT_GT(nth, 1U);
                tier->release(*extent);
                break;
            }
            EXPECT_EQ(extent.error().code(), Errc::no_space);
            EXPECT_NE(std::string(extent.error().message()).find(function), std::string::npos)
                << extent.error().message();
            EXPECT_EQ(tier->usage().used_bytes, 10 * kMiB);
            ASSERT_LT(nth, 20U) << function;
        }
        EXPECT_TRUE(holds(*tier, *kept, std::byte{7}));
        // A fault that was not met must not strike later.
        const auto spare = tier->reserve(60 * kMiB);
        if (spare) tier->release(*spare);
    }
    EXPECT_TRUE(tier->usage().open);
    tier->release(*kept);
}

TEST_F(DeviceTierTest, MemoryThatCannotBeUnmappedStaysCountedAndClosesTheTier) {
    auto tier = this->tier(64 * kMiB);
    const auto extent = tier->reserve(4 * kMiB);
    const auto other = tier->reserve(4 * kMiB);
    write(*tier, *other, std::byte{3});
    gpu_->plant_fault("cuMemUnmap", 1, CUDA_ERROR_UNKNOWN);
    EXPECT_EQ(tier->unback(*extent).error().code(), Errc::io);
    EXPECT_FALSE(tier->usage().open);
    EXPECT_EQ(tier->usage().used_bytes, 8 * kMiB);
    EXPECT_EQ(tier->reserve(1).error().code(), Errc::closed);
    EXPECT_TRUE(holds(*tier, *other, std::byte{3})) << "what it holds stays readable";
    tier->release(*other);
    // What may still be mapped is left alone: the driver has it for good.
    tier.reset();
    EXPECT_EQ(gpu_->misuse(), "");
    gpu_->restart("");
    EXPECT_NE(gpu_->misuse().find("leak-at-exit"), std::string::npos);
    gpu_->clear_misuse();
}

TEST_F(DeviceTierTest, TheCallersContextAndCaptureModeAreUntouched) {
    const auto other = gpu_->context(1);
    const CudaContext::Scope scope(*other);
    CUcontext current = nullptr;
    const auto tier = this->tier(32 * kMiB);
    const auto extent = tier->reserve(8 * kMiB);
    write(*tier, *extent, std::byte{1});
    EXPECT_TRUE(holds(*tier, *extent, std::byte{1}));
    tier->release(*extent);
    ASSERT_EQ(gpu_->driver().cuCtxGetCurrent(&current), CUDA_SUCCESS);
    EXPECT_EQ(current, other->context());
}

TEST_F(DeviceTierTest, PeersHaveAccessOnlyWhereItWasGiven) {
    const auto alone = tier(32 * kMiB);
    const auto shared = tier(32 * kMiB, {1});
    const auto peer = gpu_->context(1);
    CUdeviceptr target = 0;
    const CudaContext::Scope scope(*peer);
    const CudaStream stream = *CudaStream::create(peer);
    ASSERT_EQ(gpu_->driver().cuMemAlloc(&target, kMiB), CUDA_SUCCESS);
    const auto extent = shared->reserve(kMiB);
    write(*shared, *extent, std::byte{9});
    const auto from = reinterpret_cast<CUdeviceptr>(shared->address(*extent));
    EXPECT_EQ(gpu_->driver().cuMemcpyDtoDAsync(target, from, kMiB, stream.handle()), CUDA_SUCCESS);
    EXPECT_TRUE(stream.synchronize().has_value());
    EXPECT_EQ(gpu_->driver().cuMemFree(target), CUDA_SUCCESS);
    shared->release(*extent);
}

TEST_F(DeviceTierTest, WhatCannotWorkIsRefusedAtTheStart) {
    const auto context = gpu_->context();
    const auto refused = [&](DeviceTier::Options options) {
        options.context = context;
        const auto made = DeviceTier::create(options);
        return made ? Errc{} : made.error().code();
    };
    EXPECT_EQ(refused({.capacity_bytes = 0}), Errc::invalid_argument);
    EXPECT_EQ(refused({.capacity_bytes = kMiB}), Errc::invalid_argument) << "below granularity";
    EXPECT_EQ(refused({.capacity_bytes = 257 * kMiB}), Errc::invalid_argument);
    EXPECT_EQ(refused({.capacity_bytes = 64 * kMiB, .chunk_bytes = 6 * kMiB}),
              Errc::invalid_argument);
    EXPECT_EQ(refused({.capacity_bytes = 64 * kMiB, .chunk_bytes = kMiB}), Errc::invalid_argument);
    EXPECT_EQ(refused({.capacity_bytes = 64 * kMiB, .peers = {7}}), Errc::io);
    EXPECT_EQ(CudaContext::create(gpu_->driver(), 2).error().code(), Errc::invalid_argument);
}

TEST_F(DeviceTierTest, MemoryOfTheHostThatRunsOutIsAnErrorAndChangesNothing) {
    const auto tier = this->tier(64 * kMiB);
    spare_allocations_of(reinterpret_cast<const void*>(gpu_->driver().cuInit));
    for (std::uint64_t nth = 1; nth < 50; ++nth) {
        std::optional<Extent> extent;
        bool struck = false;
        {
            const AllocationFault fault(nth, true);
            if (const auto made = tier->reserve(30 * kMiB)) extent = *made;
            struck = fault.struck();
        }
        EXPECT_EQ(tier->usage().used_bytes, extent ? 30 * kMiB : 0U);
        if (extent) tier->release(*extent);
        const auto addresses = tier->reserve_addresses(4 * 64 * kMiB);
        ASSERT_TRUE(addresses.has_value()) << "addresses leaked at allocation " << nth;
        tier->release(*addresses);
        if (!struck) return;
    }
    ADD_FAILURE() << "a reservation allocates without end";
}

}  // namespace
}  // namespace frostline
