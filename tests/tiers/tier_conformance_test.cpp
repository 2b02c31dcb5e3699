// Proves that every tier keeps the promises of tier.h, whatever its medium: bytes come back as they
// left, charges are exact, the budget is never exceeded, and room given back can be used again.
#include "tests/tiers/process_state.h"
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

    ScratchFolder folder_{place_of(GetParam(), ScratchFolder::On::disk)};
};

std::uint64_t charge(const Tier& tier, std::uint64_t size_bytes) {
    const std::uint64_t granularity = tier.info().granularity_bytes;
    return (size_bytes + granularity - 1) / granularity * granularity;
}

Errc reserve_error(Tier& tier, std::uint64_t size_bytes) {
    const auto extent = tier.reserve(size_bytes);
    EXPECT_FALSE(extent.has_value()) << size_bytes << " bytes";
    return extent ? Errc{} : extent.error().code();
}

// What one user of a tier does at random, with the bytes it expects kept outside the tier.
class RandomUser {
   public:
    RandomUser(Tier& tier, std::uint64_t stream, std::uint64_t max_bytes)
        : tier_(tier), random_(random_stream(stream)), max_bytes_(max_bytes) {}

    void act() {
        const std::uint64_t choice = between(random_, 0, 9);
        if (held_.empty() || choice < 3) {
            reserve();
        } else if (choice < 5) {
            write_some(pick());
        } else if (choice < 8) {
            read_some(pick());
        } else {
            release(pick());
        }
    }
    void check_everything() {
        for (const Held& each : held_) {
            ASSERT_TRUE(read_all(tier_, each.extent) == each.expected) << "lost bytes";
            check_address(each);
        }
    }
    void release_everything() {
        while (!held_.empty()) release(held_.size() - 1);
    }
    std::uint64_t charged_bytes() const { return charged_bytes_; }
    std::uint64_t peak_bytes() const { return peak_bytes_; }
    std::uint64_t refusals() const { return refusals_; }

   private:
    struct Held {
        Extent extent;
        Bytes expected;
    };

    std::size_t pick() { return between(random_, 0, held_.size() - 1); }

    void reserve() {
        const std::uint64_t size = random_size(random_, max_bytes_);
        const auto extent = tier_.reserve(size);
        if (!extent) {
            ASSERT_EQ(extent.error().code(), Errc::no_space) << extent.error().message();
            ++refusals_;
            if (!held_.empty()) release(pick());
            return;
        }
        ASSERT_EQ(extent->length_bytes, size);
        ASSERT_EQ(extent->tier, tier_.info().id);
        charged_bytes_ += charge(tier_, size);
        peak_bytes_ = std::max(peak_bytes_, charged_bytes_);
        held_.push_back({*extent, random_bytes(random_, size)});
        write(held_.back(), 0, size);
    }
    void write_some(std::size_t index) {
        Held& held = held_[index];
        const auto [from, size] = range_in(held);
        const Bytes fresh = random_bytes(random_, size);
        std::copy(fresh.begin(), fresh.end(), held.expected.begin() + static_cast<long>(from));
        write(held, from, size);
    }
    void write(const Held& held, std::uint64_t from, std::uint64_t size) {
        const auto bytes = std::span(held.expected).subspan(from, size);
        const auto written = tier_.write(held.extent, from, bytes);
        ASSERT_TRUE(written.has_value()) << written.error().message();
        if (between(random_, 0, 1) == 0) {
            ASSERT_TRUE(tier_.fence(held.extent).has_value());
        }
    }
    void read_some(std::size_t index) {
        const Held& held = held_[index];
        const auto [from, size] = range_in(held);
        Bytes bytes(size);
        ASSERT_TRUE(tier_.read(held.extent, from, bytes).has_value());
        ASSERT_TRUE(
            std::equal(bytes.begin(), bytes.end(), held.expected.begin() + static_cast<long>(from)))
            << size << " bytes at " << from << " of " << held.expected.size();
    }
    void check_address(const Held& held) {
        const std::byte* const address = tier_.address(held.extent);
        ASSERT_EQ(address != nullptr,
                  tier_.info().host_addressable || tier_.info().kind == TierKind::device);
        if (!tier_.info().host_addressable) return;
        ASSERT_EQ(std::memcmp(address, held.expected.data(), held.expected.size()), 0);
    }
    void release(std::size_t index) {
        std::swap(held_[index], held_.back());
        charged_bytes_ -= charge(tier_, held_.back().extent.length_bytes);
        tier_.release(held_.back().extent);
        held_.pop_back();
    }
    std::pair<std::uint64_t, std::uint64_t> range_in(const Held& held) {
        const std::uint64_t from = between(random_, 0, held.expected.size());
        return {from, between(random_, 0, held.expected.size() - from)};
    }

    Tier& tier_;
    std::mt19937_64 random_;
    std::uint64_t max_bytes_;
    std::vector<Held> held_;
    std::uint64_t charged_bytes_ = 0;
    std::uint64_t peak_bytes_ = 0;
    std::uint64_t refusals_ = 0;
};

TEST_P(TierConformance, ABytesOracleAgreesAfterRandomUse) {
    const auto tier = this->tier(6 * kMiB);
    RandomUser user(*tier, 1, 3 * kMiB);
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
    const auto tier = this->tier(4 * kMiB);
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
            RandomUser user(*tier, stream, 2 * kMiB);
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
    const auto tier = this->tier(kMiB);
    ASSERT_EQ(tier->info().capacity_bytes, kMiB);
    ASSERT_EQ(tier->info().granularity_bytes, kPageBytes);
    std::vector<Extent> extents;
    std::vector<std::uint64_t> starts;
    for (std::uint64_t i = 0; i < kMiB / kPageBytes; ++i) {
        const auto extent = tier->reserve(i % 2 == 0 ? 1 : kPageBytes);
        ASSERT_TRUE(extent.has_value()) << extent.error().message();
        ASSERT_EQ(tier->usage().used_bytes, (i + 1) * kPageBytes);
        extents.push_back(*extent);
        starts.push_back(extent->offset);
    }
    EXPECT_EQ(reserve_error(*tier, 1), Errc::no_space);
    EXPECT_EQ(reserve_error(*tier, kPageBytes), Errc::no_space);
    EXPECT_EQ(tier->usage().used_bytes, kMiB) << "a refusal was charged";
    std::sort(starts.begin(), starts.end());
    for (std::size_t i = 1; i < starts.size(); ++i)
        ASSERT_GE(starts[i] - starts[i - 1], kPageBytes);
    tier->release(extents[17]);
    EXPECT_EQ(tier->usage().used_bytes, kMiB - kPageBytes);
    EXPECT_TRUE(tier->reserve(kPageBytes).has_value()) << "released room was not given again";
    EXPECT_EQ(reserve_error(*tier, 1), Errc::no_space);
    EXPECT_EQ(tier->usage().peak_bytes, kMiB);
}

TEST_P(TierConformance, AFreshTierGivesItsWholeBudgetAtOnce) {
    const auto tier = this->tier(2 * kMiB);
    EXPECT_EQ(reserve_error(*tier, 2 * kMiB + 1), Errc::no_space);
    const auto whole = tier->reserve(2 * kMiB);
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
    const auto tier = this->tier(2 * kMiB);
    const auto first = tier->reserve(kMiB - 5 * kPageBytes);
    ASSERT_TRUE(first.has_value());
    const auto middle = tier->reserve(4 * kPageBytes);
    ASSERT_TRUE(middle.has_value());
    tier->release(*middle);
    const auto rest = tier->reserve(kMiB + 5 * kPageBytes);
    ASSERT_TRUE(rest.has_value()) << rest.error().message();
    EXPECT_EQ(tier->usage().used_bytes, 2 * kMiB);
}

TEST_P(TierConformance, ABudgetThatIsNoMultipleOfPagesIsNotExceeded) {
    const std::uint64_t budget = kMiB + 3 * kPageBytes + 123;
    const auto tier = this->tier(budget);
    EXPECT_LE(tier->info().capacity_bytes, budget);
    std::uint64_t pages = 0;
    while (tier->reserve(kPageBytes).has_value()) ++pages;
    EXPECT_EQ(pages, budget / kPageBytes);
    EXPECT_LE(tier->usage().used_bytes, budget);
}

TEST_P(TierConformance, ImpossibleSizesAreRefused) {
    const auto tier = this->tier(kMiB);
    EXPECT_EQ(reserve_error(*tier, 0), Errc::invalid_argument);
    for (const std::uint64_t size :
         {kMiB + 1, std::uint64_t{1} << 40, std::uint64_t{1} << 63, UINT64_MAX - kPageBytes,
          UINT64_MAX - kPageBytes + 2, UINT64_MAX - 1, UINT64_MAX}) {
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
        const auto earlier = this->tier(kMiB);
        while (const auto extent = earlier->reserve(kMiB / 4)) {
            ASSERT_TRUE(earlier->write(*extent, 0, Bytes(kMiB / 4, std::byte{0x77})).has_value());
            ASSERT_TRUE(earlier->fence(*extent).has_value());
        }
    }
    const auto tier = this->tier(kMiB);
    while (const auto extent = tier->reserve(kMiB / 4)) {
        EXPECT_TRUE(read_all(*tier, *extent) == Bytes(kMiB / 4)) << "somebody's data";
    }
    EXPECT_EQ(tier->usage().used_bytes, kMiB);
}

TEST_P(TierConformance, EmptyTransfersAreFine) {
    const auto tier = this->tier(kMiB);
    const auto extent = tier->reserve(10);
    ASSERT_TRUE(extent.has_value());
    EXPECT_TRUE(tier->write(*extent, 10, {}).has_value());
    EXPECT_TRUE(tier->read(*extent, 0, {}).has_value());
}

TEST_P(TierConformance, ItsCardSaysWhatItIs) {
    const auto tier = this->tier(kMiB);
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
    EXPECT_EQ(info.label, emulated ? Label::emulated : Label::real);
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
            const auto tier = this->tier(kMiB);
            const auto extent = tier->reserve(2 * kPageBytes);
            tier->release(*extent);
            tier->release(*extent);
        },
        "broken invariant.*twice");
}

TEST_P(TierConformanceDeathTest, GivingBackWhatIsNotTheTiersEndsTheProgram) {
    EXPECT_DEATH(
        {
            const auto tier = this->tier(kMiB);
            const auto extent = tier->reserve(kPageBytes);
            tier->release({extent->tier, extent->offset - kPageBytes, 2 * kPageBytes});
        },
        "broken invariant");
    EXPECT_DEATH(this->tier(kMiB)->release({TierId{}, UINT64_MAX / 2, kPageBytes}),
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
