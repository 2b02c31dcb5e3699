// Proves what a range of device memory owes to those who queue work on it: their work is waited
// for whatever fails, a resume goes first, and content that came back changed is never handed out.
#include "tests/tiers/allocation_faults.h"
#include "tests/tiers/emulated_gpu.h"
#include "tests/tiers/tier_specimen.h"
#include "tiers/device_range.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>

namespace frostline {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// DRAM in which a byte of everything changes once it has been fenced.
class DecayingTier final : public Tier {
   public:
    explicit DecayingTier(Tier& sound) : sound_(sound) {}
    void change(const Extent& extent) { *sound_.address(extent) ^= std::byte{1}; }

    Extent last;

    const TierInfo& info() const noexcept override { return sound_.info(); }
    TierUsage usage() const noexcept override { return sound_.usage(); }
    Result<Extent> reserve(std::uint64_t size) noexcept override { return sound_.reserve(size); }
    void release(const Extent& extent) noexcept override { sound_.release(extent); }
    Result<void> write(const Extent& extent, std::uint64_t offset,
                       std::span<const std::byte> bytes) noexcept override {
        return sound_.write(extent, offset, bytes);
    }
    Result<void> read(const Extent& extent, std::uint64_t offset,
                      std::span<std::byte> bytes) noexcept override {
        return sound_.read(extent, offset, bytes);
    }
    Result<void> fence(std::span<const Extent> extents) noexcept override {
        for (const Extent& each : extents) {
            last = each;
            change(each);
        }
        return sound_.fence(extents);
    }
    std::byte* address(const Extent& extent) const noexcept override {
        return sound_.address(extent);
    }
    Result<std::unique_ptr<TransferQueue>> open_queue() noexcept override {
        return sound_.open_queue();
    }
    void calibrated(const TierSpeed& speed) noexcept override { sound_.calibrated(speed); }

   private:
    Tier& sound_;
};

class DeviceRangeUse : public testing::Test {
   protected:
    std::unique_ptr<DeviceRange> range() {
        return *DeviceRange::create(
            {.tier = device_.get(), .copies = copies_.get(), .size_bytes = kMiB, .verify = true});
    }
    // Takes much longer than a copy of the range, which would overtake it.
    void fill_slowly(const DeviceRange& range, unsigned char value) {
        const CudaContext::Scope scope(*context_);
        for (int left = 9; left >= 0; --left) {
            ASSERT_EQ(gpu_->driver().cuMemsetD8Async(range.address(),
                                                     static_cast<unsigned char>(value + left),
                                                     range.size_bytes(), stream_.handle()),
                      CUDA_SUCCESS);
        }
    }
    void expect_filled(const DeviceRange& range, unsigned char value) {
        Bytes bytes(range.size_bytes());
        ASSERT_TRUE(
            device_->copies().start_read(range.address(), bytes, stream_.handle()).has_value());
        ASSERT_TRUE(stream_.synchronize().has_value());
        EXPECT_TRUE(bytes == Bytes(range.size_bytes(), static_cast<std::byte>(value)));
    }

    EmulatedGpu gpu_{"memory=128MiB,latency_us=5000,h2d_bytes_per_s=256MiB"};
    std::shared_ptr<CudaContext> context_ = gpu_->context();
    CudaStream stream_ = *CudaStream::create(context_);
    std::unique_ptr<DeviceTier> device_ =
        *DeviceTier::create({.context = context_, .capacity_bytes = 96 * kMiB});
    std::unique_ptr<DramTier> dram_ =
        *DramTier::create({.id = TierId{1}, .capacity_bytes = 96 * kMiB});
    std::unique_ptr<CopyEngine> copies_ = *CopyEngine::create({});
};

// The emulated driver reports memory that goes under work.
TEST_F(DeviceRangeUse, ItsEndWaitsForTheWork) {
    auto range = this->range();
    ASSERT_TRUE(range->hold().has_value());
    fill_slowly(*range, 1);
    ASSERT_TRUE(range->let_go(stream_.handle()).has_value());
    range.reset();
    EXPECT_EQ(device_->usage().used_bytes, 0U);
}

TEST_F(DeviceRangeUse, ItsEndGivesBackWhatIsAway) {
    auto range = this->range();
    ASSERT_TRUE(range->evict(*dram_).has_value());
    range.reset();
    EXPECT_EQ(dram_->usage().used_bytes, 0U);
}

TEST_F(DeviceRangeUse, WithoutAnEventTheWorkIsWaitedForAtOnce) {
    const auto range = this->range();
    unsigned char value = 1;
    for (const char* function : {"cuEventCreate", "cuEventRecord"}) {
        ASSERT_TRUE(range->hold().has_value());
        fill_slowly(*range, ++value);
        gpu_->plant_fault(function, 1, CUDA_ERROR_UNKNOWN);
        EXPECT_FALSE(range->let_go(stream_.handle()).has_value()) << function;
        ASSERT_TRUE(range->evict(*dram_).has_value()) << "it was let go all the same";
        ASSERT_TRUE(range->resume().has_value());
        expect_filled(*range, value);
    }
}

TEST_F(DeviceRangeUse, WorkThatCouldNotBeWaitedForIsWaitedForByTheNextMove) {
    const auto range = this->range();
    ASSERT_TRUE(range->hold().has_value());
    fill_slowly(*range, 7);
    ASSERT_TRUE(range->let_go(stream_.handle()).has_value());
    for (const unsigned nth : {1U, 2U}) {  // a wait that fails is asked for again
        gpu_->plant_fault("cuEventSynchronize", nth, CUDA_ERROR_UNKNOWN);
    }
    EXPECT_FALSE(range->evict(*dram_).has_value());
    ASSERT_TRUE(range->evict(*dram_).has_value());
    ASSERT_TRUE(range->resume().has_value());
    expect_filled(*range, 7);
}

TEST_F(DeviceRangeUse, EventsOfWorkThatEndedAreNotKept) {
    const auto range = this->range();
    const auto events = [&] {
        return gpu_->calls("cuEventCreate") - gpu_->calls("cuEventDestroy");
    };
    const std::uint64_t before = events();
    for (int use = 0; use < 50; ++use) {
        ASSERT_TRUE(range->hold().has_value());
        ASSERT_TRUE(range->let_go(stream_.handle()).has_value());
        ASSERT_TRUE(stream_.synchronize().has_value());
    }
    EXPECT_EQ(events() - before, 1U) << "the last one's";
}

TEST_F(DeviceRangeUse, EachOfThoseWhoHoldItLetsGoForItself) {
    const auto range = this->range();
    ASSERT_TRUE(range->hold().has_value());
    ASSERT_TRUE(range->hold().has_value());
    ASSERT_TRUE(range->let_go(stream_.handle()).has_value());
    EXPECT_EQ(range->evict(*dram_).error().code(), Errc::busy);
    ASSERT_TRUE(range->let_go(stream_.handle()).has_value());
    EXPECT_TRUE(range->evict(*dram_).has_value());
}

TEST_F(DeviceRangeUse, ContentThatChangedWhileItWasAwayIsAnErrorUntilItIsMended) {
    DecayingTier decaying(*dram_);
    const auto range = this->range();
    ASSERT_TRUE(range->hold().has_value());
    fill_slowly(*range, 3);
    ASSERT_TRUE(range->let_go(stream_.handle()).has_value());
    ASSERT_TRUE(range->evict(decaying).has_value());
    EXPECT_EQ(range->resume().error().code(), Errc::corrupt);
    EXPECT_EQ(range->state(), DeviceRange::State::evicted);
    EXPECT_EQ(device_->usage().used_bytes, 0U);
    decaying.change(decaying.last);
    ASSERT_TRUE(range->resume().has_value());
    expect_filled(*range, 3);
}

TEST_F(DeviceRangeUse, AResumeGoesBeforeEvictionsOfTheSameWay) {
    const auto range = this->range();
    ASSERT_TRUE(range->evict(*dram_).has_value());
    const Extent source = *dram_->reserve(64 * kMiB);
    const Extent target = *device_->reserve(64 * kMiB);
    std::atomic<bool> ended{false};
    ASSERT_TRUE(copies_
                    ->submit({.source_tier = dram_.get(),
                              .source = source,
                              .target_tier = device_.get(),
                              .target = target,
                              .done = [&](const CopyOutcome&) { ended = true; },
                              .priority = CopyPriority::prefetch})
                    .has_value());
    ASSERT_TRUE(range->resume().has_value());
    EXPECT_FALSE(ended) << "it waited for what nobody waits for";
    copies_.reset();
    dram_->release(source);
    device_->release(target);
}

TEST_F(DeviceRangeUse, WithoutMemoryForItselfItTakesNoneOfTheDevice) {
    spare_allocations_of(reinterpret_cast<const void*>(gpu_->driver().cuInit));
    range().reset();  // the tier's books grow once, and then each range allocates alike
    for (std::uint64_t nth = 1; nth < 40; ++nth) {
        bool struck = false;
        {
            const AllocationFault fault(nth, true);
            const auto made = DeviceRange::create(
                {.tier = device_.get(), .copies = copies_.get(), .size_bytes = kMiB});
            struck = fault.struck();
            EXPECT_EQ(made.has_value(), !struck);
        }
        EXPECT_EQ(device_->usage().used_bytes, 0U) << nth;
        if (!struck) return;
    }
    ADD_FAILURE() << "a range allocates without end";
}

TEST(DeviceRangeLost, MemoryThatTheDriverKeepsLeavesItEvictedForGood) {
    const EmulatedGpu gpu("memory=64MiB");
    {
        const auto device =
            *DeviceTier::create({.context = gpu->context(), .capacity_bytes = 16 * kMiB});
        const auto dram = *DramTier::create({.id = TierId{1}, .capacity_bytes = 16 * kMiB});
        const auto copies = *CopyEngine::create({});
        auto range = *DeviceRange::create(
            {.tier = device.get(), .copies = copies.get(), .size_bytes = kMiB});
        gpu->plant_fault("cuMemUnmap", 1, CUDA_ERROR_UNKNOWN);
        EXPECT_EQ(range->evict(*dram).error().code(), Errc::io);
        EXPECT_EQ(range->state(), DeviceRange::State::evicted);
        EXPECT_EQ(range->resume().error().code(), Errc::closed);
        EXPECT_EQ(range->hold().error().code(), Errc::busy);
        range.reset();
        EXPECT_EQ(dram->usage().used_bytes, 0U);
    }
    EXPECT_EQ(gpu->misuse(), "");
    gpu->restart("");
    EXPECT_NE(gpu->misuse().find("leak-at-exit: 1 mappings"), std::string::npos);
    gpu->clear_misuse();
}

class DeviceRangeUseDeathTest : public DeviceRangeUse {
   protected:
    void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(DeviceRangeUseDeathTest, LettingGoOfWhatIsNotHeldEndsTheProgram) {
    EXPECT_DEATH((void)range()->let_go(stream_.handle()), "broken invariant.*more often than held");
}

}  // namespace
}  // namespace frostline
