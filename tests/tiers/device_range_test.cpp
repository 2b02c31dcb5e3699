// Proves that the content behind a fixed address survives leaving and coming back, whatever the
// driver refuses, and that nothing moves that is in use or known to others. Named after the cases
// that users of other tools reported.
#include "tiers/device_range.h"
#include "tests/tiers/emulated_gpu.h"
#include "tests/tiers/tier_specimen.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <thread>

namespace frostline {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kSize = 20 * kMiB + 12345;

class DeviceRangeTest : public testing::Test {
   protected:
    DeviceRangeTest()
        : context_(gpu_->context()),
          stream_(*CudaStream::create(context_)),
          device_(*DeviceTier::create({.context = context_, .capacity_bytes = 64 * kMiB})),
          dram_(*DramTier::create({.id = TierId{1}, .capacity_bytes = 64 * kMiB})),
          pmem_(tier_of(Specimen::pmem, folder_, 64 * kMiB, TierId{2})),
          swap_(tier_of(Specimen::swap, folder_, 64 * kMiB, TierId{3})),
          copies_(*CopyEngine::create({})) {}

    std::unique_ptr<DeviceRange> range(std::uint64_t size_bytes = kSize) {
        auto made = DeviceRange::create({.tier = device_.get(),
                                         .copies = copies_.get(),
                                         .size_bytes = size_bytes,
                                         .verify = true});
        if (!made) {
            ADD_FAILURE() << made.error().message();
            std::abort();
        }
        return *std::move(made);
    }
    // As a program does it: held while the work is queued, let go with the stream.
    void fill(DeviceRange& range, unsigned char value) {
        ASSERT_TRUE(range.hold().has_value());
        const CudaContext::Scope scope(*context_);
        ASSERT_EQ(gpu_->driver().cuMemsetD8Async(range.address(), value, range.size_bytes(),
                                                 stream_.handle()),
                  CUDA_SUCCESS);
        ASSERT_TRUE(range.let_go(stream_.handle()).has_value());
    }
    void expect_filled(const DeviceRange& range, unsigned char value) {
        Bytes bytes(range.size_bytes());
        const DeviceCopies& copies = device_->copies();
        ASSERT_TRUE(copies.start_read(range.address(), bytes, stream_.handle()).has_value());
        ASSERT_TRUE(stream_.synchronize().has_value());
        EXPECT_TRUE(bytes == Bytes(range.size_bytes(), static_cast<std::byte>(value)));
    }
    // A wait that fails is asked for again; everything else is asked for once.
    void refuse(const std::string& function, CUresult result) {
        gpu_->plant_fault(function.c_str(), 1, result);
        if (function == "cuEventSynchronize") gpu_->plant_fault(function.c_str(), 2, result);
    }
    std::array<Tier*, 3> lower() { return {dram_.get(), pmem_.get(), swap_.get()}; }
    void expect_lower_empty() {
        for (Tier* const tier : lower()) EXPECT_EQ(tier->usage().used_bytes, 0U);
    }

    EmulatedGpu gpu_{"memory=256MiB,jitter_us=50,seed=3"};
    ScratchFolder folder_;
    std::shared_ptr<CudaContext> context_;
    CudaStream stream_;
    std::unique_ptr<DeviceTier> device_;
    std::unique_ptr<DramTier> dram_;
    std::unique_ptr<Tier> pmem_;
    std::unique_ptr<Tier> swap_;
    std::unique_ptr<CopyEngine> copies_;
};

TEST_F(DeviceRangeTest, ContentSurvivesEveryTierAtTheSameAddress) {
    const auto range = this->range();
    const CUdeviceptr address = range->address();
    unsigned char value = 1;
    for (Tier* const tier : lower()) {
        fill(*range, ++value);
        ASSERT_TRUE(range->evict(*tier).has_value());
        EXPECT_EQ(range->state(), DeviceRange::State::evicted);
        EXPECT_EQ(device_->usage().used_bytes, 0U) << "what leaves really leaves";
        EXPECT_GE(tier->usage().used_bytes, kSize);
        ASSERT_TRUE(range->resume().has_value());
        EXPECT_EQ(range->state(), DeviceRange::State::resident);
        EXPECT_EQ(range->address(), address);
        EXPECT_EQ(tier->usage().used_bytes, 0U) << "the copy is not kept (C10)";
        expect_filled(*range, value);
    }
}

TEST_F(DeviceRangeTest, C01_WhatOthersKnowNeverMoves) {
    for (const auto& [reason, word] : {std::pair(DeviceRange::Fixed::captured, "graph"),
                                       {DeviceRange::Fixed::registered, "communication"},
                                       {DeviceRange::Fixed::exported, "process"}}) {
        const auto range = this->range(kMiB);
        ASSERT_TRUE(range->fix(reason).has_value());
        const auto refused = range->evict(*dram_);
        ASSERT_FALSE(refused.has_value());
        EXPECT_EQ(refused.error().code(), Errc::busy);
        EXPECT_NE(std::string(refused.error().message()).find(word), std::string::npos);
        EXPECT_EQ(range->state(), DeviceRange::State::resident);
    }
    expect_lower_empty();
}

TEST_F(DeviceRangeTest, C05_ResumeIsAllOrNothingAndOnlyOnce) {
    const auto range = this->range();
    fill(*range, 7);
    EXPECT_EQ(range->resume().error().code(), Errc::busy) << "it is resident";
    ASSERT_TRUE(range->evict(*dram_).has_value());
    EXPECT_EQ(range->evict(*dram_).error().code(), Errc::not_found) << "it is evicted";
    const Extent taken = *device_->reserve(device_->kept_bytes());  // so that some must be made
    refuse("cuMemCreate", CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_FALSE(range->resume().has_value());
    EXPECT_EQ(range->state(), DeviceRange::State::evicted);
    device_->release(taken);
    EXPECT_EQ(device_->usage().used_bytes, 0U);
    for (const char* function : {"cuMemMap", "cuMemSetAccess", "cuMemcpyHtoDAsync", "cuEventRecord",
                                 "cuEventSynchronize", "cuMemHostRegister"}) {
        refuse(function, CUDA_ERROR_OUT_OF_MEMORY);
        const auto resumed = range->resume();
        if (resumed) {  // staging is made once
            ASSERT_STREQ(function, "cuMemHostRegister");
            ASSERT_TRUE(range->evict(*dram_).has_value());
            continue;
        }
        EXPECT_EQ(range->state(), DeviceRange::State::evicted) << function;
        EXPECT_EQ(device_->usage().used_bytes, 0U) << function;
    }
    ASSERT_TRUE(range->resume().has_value());
    expect_filled(*range, 7);
    expect_lower_empty();
}

TEST_F(DeviceRangeTest, C05_ResumeWithoutRoomIsAnErrorAndCanBeTriedAgain) {
    const auto range = this->range(40 * kMiB);
    fill(*range, 9);
    ASSERT_TRUE(range->evict(*swap_).has_value());
    const auto other = device_->reserve(30 * kMiB);
    ASSERT_TRUE(other.has_value());
    EXPECT_EQ(range->resume().error().code(), Errc::no_space);
    EXPECT_EQ(range->state(), DeviceRange::State::evicted);
    device_->release(*other);
    ASSERT_TRUE(range->resume().has_value());
    expect_filled(*range, 9);
}

TEST_F(DeviceRangeTest, C06_WhoeverQueuesWorkKeepsItResident) {
    const auto range = this->range(kMiB);
    ASSERT_TRUE(range->hold().has_value());
    EXPECT_EQ(range->evict(*dram_).error().code(), Errc::busy);
    ASSERT_TRUE(range->let_go(stream_.handle()).has_value());
    ASSERT_TRUE(range->evict(*dram_).has_value());
    EXPECT_EQ(range->hold().error().code(), Errc::busy) << "nothing can be launched on it";
    EXPECT_EQ(range->fix(DeviceRange::Fixed::captured).error().code(), Errc::busy);
    ASSERT_TRUE(range->resume().has_value());
    EXPECT_TRUE(range->hold().has_value());
    EXPECT_TRUE(range->let_go(stream_.handle()).has_value());
}

// The memory must not go while kernels, here fills that take long, still run on it; the emulated
// driver reports it if it does.
TEST_F(DeviceRangeTest, C04_EvictionWaitsForTheWorkOfEveryStream) {
    const auto range = this->range();
    const CudaStream other = *CudaStream::create(context_);
    for (unsigned char round = 1; round < 20; ++round) {
        fill(*range, round);
        ASSERT_TRUE(range->hold().has_value());
        {
            const CudaContext::Scope scope(*context_);
            const CudaEvent filled = *CudaEvent::create(context_);
            ASSERT_TRUE(filled.record(stream_.handle()).has_value());
            ASSERT_TRUE(other.wait(filled).has_value());
            ASSERT_EQ(
                gpu_->driver().cuMemsetD8Async(range->address(), round + 100, kMiB, other.handle()),
                CUDA_SUCCESS);
        }
        ASSERT_TRUE(range->let_go(other.handle()).has_value());
        ASSERT_TRUE(range->evict(*lower()[round % 3]).has_value());
        ASSERT_TRUE(range->resume().has_value());
        Bytes bytes(range->size_bytes());
        ASSERT_TRUE(
            device_->copies().start_read(range->address(), bytes, stream_.handle()).has_value());
        ASSERT_TRUE(stream_.synchronize().has_value());
        ASSERT_EQ(bytes.front(), static_cast<std::byte>(round + 100));
        ASSERT_EQ(bytes.back(), static_cast<std::byte>(round));
    }
}

TEST_F(DeviceRangeTest, AnEvictionThatFailsChangesNothing) {
    const auto range = this->range();
    fill(*range, 5);
    const auto full = DramTier::create({.id = TierId{4}, .capacity_bytes = kMiB});
    EXPECT_EQ(range->evict(**full).error().code(), Errc::no_space);
    for (const char* function : {"cuEventSynchronize", "cuMemcpyDtoHAsync", "cuEventRecord"}) {
        fill(*range, 5);
        refuse(function, CUDA_ERROR_UNKNOWN);
        EXPECT_FALSE(range->evict(*pmem_).has_value()) << function;
        EXPECT_EQ(range->state(), DeviceRange::State::resident) << function;
        expect_lower_empty();
    }
    expect_filled(*range, 5);
}

TEST_F(DeviceRangeTest, RangesMoveAtTheSameTimeAndEachIsMovedByOne) {
    std::vector<std::unique_ptr<DeviceRange>> ranges;
    for (int i = 0; i < 4; ++i) {
        ranges.push_back(range(6 * kMiB));
        fill(*ranges.back(), static_cast<unsigned char>(i + 1));
    }
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; ++thread) {
        threads.emplace_back([&, thread] {
            auto random = random_stream(90 + static_cast<std::uint64_t>(thread));
            for (int i = 0; i < 60; ++i) {
                DeviceRange& range = *ranges[between(random, 0, 3)];
                // Refused or done; which of them depends on the others.
                if (between(random, 0, 1) == 0) {
                    (void)range.evict(*lower()[between(random, 0, 2)]);
                } else {
                    (void)range.resume();
                }
            }
        });
    }
    for (std::thread& each : threads) each.join();
    for (std::size_t i = 0; i < ranges.size(); ++i) {
        if (ranges[i]->state() == DeviceRange::State::evicted) {
            ASSERT_TRUE(ranges[i]->resume().has_value());
        }
        expect_filled(*ranges[i], static_cast<unsigned char>(i + 1));
    }
    expect_lower_empty();
}

}  // namespace
}  // namespace frostline
