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

    static constexpr const char* kMachine = "memory=256MiB,devices=2,peer=1";
    EmulatedGpu gpu_{kMachine};
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
    auto tier = this->tier(64 * kMiB);
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
    tier.reset();
    EXPECT_EQ(calls("cuMemRelease"), 2U) << "what is kept goes with the tier";
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
    for (const char* function : {"cuMemCreate", "cuMemMap", "cuMemSetAccess"}) {
        bool refused = true;
        for (unsigned nth = 1; refused; ++nth) {
            gpu_->restart(kMachine);  // which forgets a fault that was not met
            const auto tier = this->tier(128 * kMiB);
            const auto kept = tier->reserve(10 * kMiB);
            write(*tier, *kept, std::byte{7});
            gpu_->plant_fault(function, nth, CUDA_ERROR_OUT_OF_MEMORY);
            const auto extent = tier->reserve(47 * kMiB);  // 16 + 16 + 8 + 4 + 2 + ...
            refused = !extent.has_value();
            if (extent) {
                EXPECT_GT(nth, 1U);
                tier->release(*extent);
            } else {
                EXPECT_EQ(extent.error().code(), Errc::no_space);
                EXPECT_NE(std::string(extent.error().message()).find(function), std::string::npos)
                    << extent.error().message();
            }
            EXPECT_EQ(tier->usage().used_bytes, 10 * kMiB);
            EXPECT_TRUE(tier->usage().open);
            EXPECT_TRUE(holds(*tier, *kept, std::byte{7}));
            tier->release(*kept);
            EXPECT_EQ(gpu_->misuse(), "");
            ASSERT_LT(nth, 20U) << function;
        }
    }
}

TEST_F(DeviceTierTest, RoomIsChargedBeforeThereIsMemoryBehindIt) {
    const auto tier = this->tier(32 * kMiB);
    const auto room = tier->reserve_room(20 * kMiB);
    ASSERT_TRUE(room.has_value());
    EXPECT_EQ(calls("cuMemCreate"), 0U);
    EXPECT_EQ(tier->usage().used_bytes, 20 * kMiB);
    EXPECT_EQ(tier->reserve_room(20 * kMiB).error().code(), Errc::no_space);
    gpu_->plant_fault("cuMemMap", 2, CUDA_ERROR_UNKNOWN);
    EXPECT_EQ(tier->back(*room).error().code(), Errc::io);
    EXPECT_EQ(tier->usage().used_bytes, 20 * kMiB) << "it is room still";
    ASSERT_TRUE(tier->back(*room).has_value());
    EXPECT_EQ(tier->back(*room).error().code(), Errc::busy);
    EXPECT_EQ(tier->usage().used_bytes, 20 * kMiB) << "charged once";
    write(*tier, *room, std::byte{5});
    EXPECT_TRUE(holds(*tier, *room, std::byte{5}));
    tier->release(*room);
    const auto unused = tier->reserve_room(32 * kMiB);
    ASSERT_TRUE(unused.has_value());
    tier->release(*unused);
    EXPECT_EQ(tier->usage().used_bytes, 0U);
}

TEST_F(DeviceTierTest, MemoryThatCannotBeUnmappedStaysCountedAndClosesTheTier) {
    auto tier = this->tier(64 * kMiB);
    const auto extent = tier->reserve(4 * kMiB);
    const auto other = tier->reserve(4 * kMiB);
    const auto third = tier->reserve(4 * kMiB);
    write(*tier, *other, std::byte{3});
    gpu_->plant_fault("cuMemUnmap", 1, CUDA_ERROR_UNKNOWN);
    EXPECT_EQ(tier->unback(*extent).error().code(), Errc::io);
    EXPECT_FALSE(tier->usage().open);
    EXPECT_EQ(tier->usage().used_bytes, 12 * kMiB);
    gpu_->plant_fault("cuMemUnmap", 1, CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_FALSE(tier->unback(*third).has_value());
    // The first failure is the cause.
    EXPECT_EQ(tier->reserve(1).error().code(), Errc::closed);
    EXPECT_STREQ(tier->reserve(1).error().message(),
                 "the device tier takes no more since this failure: cuMemUnmap failed: "
                 "CUDA_ERROR_UNKNOWN (999)");
    EXPECT_STREQ(tier->back(*extent).error().message(),
                 "this device extent was lost to a failure: cuMemUnmap failed: "
                 "CUDA_ERROR_UNKNOWN (999)");
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
    EXPECT_EQ(refused({.capacity_bytes = 64 * kMiB, .peers = {7}}), Errc::invalid_argument);
    EXPECT_EQ(CudaContext::create(gpu_->driver(), 2).error().code(), Errc::invalid_argument);
}

TEST_F(DeviceTierTest, ABudgetBetweenGranulesIsRoundedDownAndSaysSo) {
    const auto rounded = tier(3 * kMiB);
    EXPECT_EQ(rounded->info().capacity_bytes, 2 * kMiB);
    EXPECT_NE(rounded->info().fallback.find("the budget is 2097152 bytes and not 3145728: the GPU "
                                            "hands out multiples of 2097152"),
              std::string::npos)
        << rounded->info().fallback;
    EXPECT_EQ(tier(4 * kMiB)->info().fallback.find("budget"), std::string::npos);
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
