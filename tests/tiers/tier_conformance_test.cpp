// Proves that every tier keeps the promises of tier.h, whatever its medium: bytes come back as they
// left, charges are exact, the budget is never exceeded, and room given back can be used again.
#include "tests/tiers/process_state.h"
#include "tests/tiers/random_tier_user.h"
#include "tests/tiers/tier_specimen.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>

namespace frostline {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class TierConformance : public testing::TestWithParam<Specimen> {
   protected:
    std::unique_ptr<Tier> tier(std::uint64_t capacity_bytes) {
        return tier_of(GetParam(), folder_, capacity_bytes);
    }

    // What is taken at least, and a budget of many such. A GPU's own granularity is so large that
    // the budgets are in proportion smaller.
    const std::uint64_t granule_ =
        is_device(GetParam()) ? SpecimenGpu::granularity_bytes() : kPageBytes;
    const std::uint64_t unit_ = granule_ == kPageBytes ? kMiB : 16 * granule_;
    ScratchFolder folder_{place_of(GetParam(), ScratchFolder::On::disk)};
};

Errc reserve_error(Tier& tier, std::uint64_t size_bytes) {
    const auto extent = tier.reserve(size_bytes);
    EXPECT_FALSE(extent.has_value()) << size_bytes << " bytes";
    return extent ? Errc{} : extent.error().code();
}

TEST_P(TierConformance, ABytesOracleAgreesAfterRandomUse) {
    const auto tier = this->tier(6 * unit_);
    RandomTierUser user(*tier, 1, 3 * unit_);
    for (int step = 0; step < 600 && !HasFatalFailure(); ++step) {
        user.act();
        ASSERT_EQ(tier->usage().used_bytes, user.charged_bytes());
        ASSERT_EQ(tier->usage().peak_bytes, user.peak_bytes());
        ASSERT_LE(tier->usage().used_bytes, tier->info().capacity_bytes);
        if (step % 100 == 99) user.check_everything();
    }
    user.release_everything();
    EXPECT_EQ(tier->usage().used_bytes, 0U);
    EXPECT_EQ(tier->usage().peak_bytes, user.peak_bytes());
    EXPECT_TRUE(tier->usage().open);
    // However the room was cut up, it is one piece again.
    const auto whole = tier->reserve(tier->info().capacity_bytes);
    ASSERT_TRUE(whole.has_value()) << whole.error().message();
    tier->release(*whole);
}

TEST_P(TierConformance, SeveralThreadsStayWithinTheBudget) {
    const auto tier = this->tier(4 * unit_);
    std::atomic<bool> finished{false};
    std::thread observer([&] {
        while (!finished.load()) {
            const TierUsage usage = tier->usage();
            ASSERT_LE(usage.used_bytes, tier->info().capacity_bytes);
            ASSERT_LE(usage.used_bytes, usage.peak_bytes);
            ASSERT_LE(usage.peak_bytes, tier->info().capacity_bytes);
            std::this_thread::yield();
        }
    });
    std::vector<std::thread> threads;
    std::atomic<std::uint64_t> refusals{0};
    for (std::uint64_t stream = 10; stream < 14; ++stream) {
        threads.emplace_back([&, stream] {
            RandomTierUser user(*tier, stream, 2 * unit_);
            for (int step = 0; step < 200 && !testing::Test::HasFatalFailure(); ++step) user.act();
            user.check_everything();
            user.release_everything();
            refusals += user.refusals();
        });
    }
    for (std::thread& each : threads) each.join();
    finished = true;
    observer.join();
    EXPECT_GT(refusals.load(), 0U) << "the budget was never tight, which proves nothing";
    EXPECT_EQ(tier->usage().used_bytes, 0U);
}

TEST_P(TierConformance, PagesAreGivenUntilTheBudgetIsFullAndNotOneMore) {
    const auto tier = this->tier(unit_);
    ASSERT_EQ(tier->info().capacity_bytes, unit_);
    ASSERT_EQ(tier->info().granularity_bytes, granule_);
    std::vector<Extent> extents;
    std::vector<std::uint64_t> starts;
    for (std::uint64_t i = 0; i < unit_ / granule_; ++i) {
        const auto extent = tier->reserve(i % 2 == 0 ? 1 : granule_);
        ASSERT_TRUE(extent.has_value()) << extent.error().message();
        ASSERT_EQ(tier->usage().used_bytes, (i + 1) * granule_);
        extents.push_back(*extent);
        starts.push_back(extent->offset);
    }
    EXPECT_EQ(reserve_error(*tier, 1), Errc::no_space);
    EXPECT_EQ(reserve_error(*tier, granule_), Errc::no_space);
    EXPECT_EQ(tier->usage().used_bytes, unit_) << "a refusal was charged";
    std::sort(starts.begin(), starts.end());
    for (std::size_t i = 1; i < starts.size(); ++i) ASSERT_GE(starts[i] - starts[i - 1], granule_);
    tier->release(extents[11]);
    EXPECT_EQ(tier->usage().used_bytes, unit_ - granule_);
    EXPECT_TRUE(tier->reserve(granule_).has_value()) << "released room was not given again";
    EXPECT_EQ(reserve_error(*tier, 1), Errc::no_space);
    EXPECT_EQ(tier->usage().peak_bytes, unit_);
}

TEST_P(TierConformance, AFreshTierGivesItsWholeBudgetAtOnce) {
    const auto tier = this->tier(2 * unit_);
    EXPECT_EQ(reserve_error(*tier, 2 * unit_ + 1), Errc::no_space);
    const auto whole = tier->reserve(2 * unit_);
    ASSERT_TRUE(whole.has_value()) << whole.error().message();
    EXPECT_EQ(reserve_error(*tier, 1), Errc::no_space);
    auto random = random_stream(2);
    const Bytes bytes = random_bytes(random, whole->length_bytes);
    ASSERT_TRUE(tier->write(*whole, 0, bytes).has_value());
    ASSERT_TRUE(tier->fence(*whole).has_value());
    EXPECT_TRUE(read_all(*tier, *whole) == bytes);
}

TEST_P(TierConformance, TheLastHalfFitsBehindAGapThatGrew) {
    // Free room at the end of what the medium has so far counts towards a larger request.
    const auto tier = this->tier(2 * unit_);
    const auto first = tier->reserve(unit_ - 5 * granule_);
    ASSERT_TRUE(first.has_value());
    const auto middle = tier->reserve(4 * granule_);
    ASSERT_TRUE(middle.has_value());
    tier->release(*middle);
    const auto rest = tier->reserve(unit_ + 5 * granule_);
    ASSERT_TRUE(rest.has_value()) << rest.error().message();
    EXPECT_EQ(tier->usage().used_bytes, 2 * unit_);
}

TEST_P(TierConformance, ABudgetThatIsNoMultipleOfPagesIsNotExceeded) {
    const std::uint64_t budget = unit_ + 3 * granule_ + 123;
    const auto tier = this->tier(budget);
    EXPECT_LE(tier->info().capacity_bytes, budget);
    std::uint64_t pages = 0;
    while (tier->reserve(granule_).has_value()) ++pages;
    EXPECT_EQ(pages, budget / granule_);
    EXPECT_LE(tier->usage().used_bytes, budget);
}

TEST_P(TierConformance, ImpossibleSizesAreRefused) {
    const auto tier = this->tier(unit_);
    EXPECT_EQ(reserve_error(*tier, 0), Errc::invalid_argument);
    for (const std::uint64_t size :
         {unit_ + 1, std::uint64_t{1} << 40, std::uint64_t{1} << 63, UINT64_MAX - granule_,
          UINT64_MAX - granule_ + 2, UINT64_MAX - 1, UINT64_MAX}) {
        EXPECT_EQ(reserve_error(*tier, size), Errc::no_space) << size;
    }
    EXPECT_EQ(tier->usage().used_bytes, 0U);
    EXPECT_EQ(tier->usage().peak_bytes, 0U);
    EXPECT_TRUE(tier->usage().open) << "a refusal must not close a tier";
}

// Not of device memory, which the driver clears between processes only.
using TierPrivacy = TierConformance;

TEST_P(TierPrivacy, ANewExtentShowsNothingOfAnEarlierTier) {
    {
        const auto earlier = this->tier(unit_);
        while (const auto extent = earlier->reserve(unit_ / 4)) {
            ASSERT_TRUE(earlier->write(*extent, 0, Bytes(unit_ / 4, std::byte{0x77})).has_value());
            ASSERT_TRUE(earlier->fence(*extent).has_value());
        }
    }
    const auto tier = this->tier(unit_);
    while (const auto extent = tier->reserve(unit_ / 4)) {
        EXPECT_TRUE(read_all(*tier, *extent) == Bytes(unit_ / 4)) << "somebody's data";
    }
    EXPECT_EQ(tier->usage().used_bytes, unit_);
}

TEST_P(TierConformance, EmptyTransfersAreFine) {
    const auto tier = this->tier(unit_);
    const auto extent = tier->reserve(10);
    ASSERT_TRUE(extent.has_value());
    EXPECT_TRUE(tier->write(*extent, 10, {}).has_value());
    EXPECT_TRUE(tier->read(*extent, 0, {}).has_value());
}

TEST_P(TierConformance, ItsCardSaysWhatItIs) {
    const auto tier = this->tier(unit_);
    const TierInfo& info = tier->info();
    const bool memory = is_dram(GetParam());
    const bool real_pmem = GetParam() == Specimen::pmem_dax || GetParam() == Specimen::pmem_device;
    const bool pmem = GetParam() == Specimen::pmem || real_pmem;
    const bool device = is_device(GetParam());
    EXPECT_EQ(info.kind, memory   ? TierKind::dram
                         : device ? TierKind::device
                         : pmem   ? TierKind::pmem
                                  : TierKind::swap);
    // Also where the environment makes libpmem call a file persistent memory.
    const bool swap_in_memory = is_swap(GetParam()) && folder_.in_memory();
    const bool emulated = device || (pmem && !real_pmem) || swap_in_memory;
    EXPECT_EQ(info.label, device && SpecimenGpu::is_own() ? SpecimenGpu::label()
                          : emulated                      ? Label::emulated
                                                          : Label::real);
    EXPECT_EQ(info.host_addressable, memory || pmem);
    EXPECT_EQ(info.durable, pmem);
    EXPECT_EQ(info.location.empty(), memory);
    if (real_pmem) {
        const bool dax = GetParam() == Specimen::pmem_device;
        EXPECT_EQ(info.access, dax ? "devdax, non-temporal copies" : "fsdax, non-temporal copies");
        EXPECT_EQ(info.fallback, "");
    }
}

// The child that dies is a plain fork, so that its folder is the parent's, who removes it; but no
// driver of a GPU works in a fork of the process that started it.
class TierConformanceDeathTest : public TierConformance {
   protected:
    void SetUp() override {
        const bool gpu = is_device(GetParam()) || GetParam() == Specimen::dram_pinned;
        GTEST_FLAG_SET(death_test_style, gpu ? "threadsafe" : "fast");
    }
};

TEST_P(TierConformanceDeathTest, GivingAnExtentBackTwiceEndsTheProgram) {
    EXPECT_DEATH(
        {
            const auto tier = this->tier(unit_);
            const auto extent = tier->reserve(2 * granule_);
            tier->release(*extent);
            tier->release(*extent);
        },
        "broken invariant.*twice");
}

TEST_P(TierConformanceDeathTest, GivingBackWhatIsNotTheTiersEndsTheProgram) {
    EXPECT_DEATH(
        {
            const auto tier = this->tier(unit_);
            const auto extent = tier->reserve(granule_);
            tier->release({extent->tier, extent->offset - granule_, 2 * granule_});
        },
        "broken invariant");
    EXPECT_DEATH(this->tier(unit_)->release({TierId{}, UINT64_MAX / 2, granule_}),
                 "broken invariant");
}

INSTANTIATE_TEST_SUITE_P(
    Tiers, TierConformance,
    testing::ValuesIn(with_real_pmem({Specimen::dram, Specimen::dram_small_pages,
                                      Specimen::dram_bound, Specimen::dram_pinned, Specimen::device,
                                      Specimen::device_in_chunks, Specimen::pmem, Specimen::swap,
                                      Specimen::swap_by_pages, Specimen::swap_striped,
                                      Specimen::swap_ordinary, Specimen::swap_cached})),
    testing::PrintToStringParamName());
INSTANTIATE_TEST_SUITE_P(Tiers, TierPrivacy,
                         testing::ValuesIn(with_real_pmem(
                             {Specimen::dram, Specimen::dram_small_pages, Specimen::dram_bound,
                              Specimen::dram_pinned, Specimen::pmem, Specimen::swap,
                              Specimen::swap_by_pages, Specimen::swap_striped,
                              Specimen::swap_ordinary, Specimen::swap_cached})),
                         testing::PrintToStringParamName());
INSTANTIATE_TEST_SUITE_P(Tiers, TierConformanceDeathTest,
                         testing::Values(Specimen::dram, Specimen::dram_small_pages,
                                         Specimen::dram_bound, Specimen::dram_pinned,
                                         Specimen::device, Specimen::pmem, Specimen::swap),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace frostline
