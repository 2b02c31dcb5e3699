// Proves that a measurement gets its arithmetic right, keeps to its time and its room, and gives
// all of it back whatever fails.
#include "tiers/calibration.h"

#include "tests/tiers/inert_tier.h"
#include "tests/tiers/scripted_tier.h"
#include "tests/tiers/tier_specimen.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace frostline {
namespace {

constexpr std::uint64_t kMi = std::uint64_t{1} << 20;
constexpr std::uint64_t kBudgetNs = kCalibrationBudgetNs / 3;

Result<Calibration> measured(ScriptedTier& tier) {
    return calibrate(tier, {.budget_ns = kBudgetNs, .most_writers = 1, .now_ns = [&tier] {
                                return tier.now_ns();
                            }});
}

void expect_near(std::uint64_t actual, double expected, double tolerance, const char* what) {
    EXPECT_NEAR(static_cast<double>(actual) / expected, 1, tolerance) << what << ": " << actual;
}

TEST(Calibration, measures_what_the_script_says) {
    ScriptedTier tier({.write_ns_per_byte = 1,
                       .read_ns_per_byte = 0.25,
                       .write_ns = 2000,
                       .read_ns = 7000,
                       .fence_ns = 1000});
    const auto result = measured(tier);
    ASSERT_TRUE(result.has_value()) << result.error().message();
    expect_near(result->speed.write_bytes_per_s, 1e9, 0.02, "write bandwidth");
    expect_near(result->speed.read_bytes_per_s, 4e9, 0.02, "read bandwidth");
    EXPECT_EQ(result->speed.write_latency_ns, 2000U + 1000U + kPageBytes);
    EXPECT_EQ(result->speed.read_latency_ns, 7000U + kPageBytes / 4);
    EXPECT_EQ(result->speed.best_writers, 1U);
    EXPECT_EQ(result->sample_bytes, 64 * kMi);
    EXPECT_EQ(tier.reservations(), 0U);
}

TEST(Calibration, keeps_a_queue_full) {
    for (const bool takes_memory : {true, false}) {
        // One at a time, a transfer of 1 MiB would take three times as long.
        ScriptedTier tier({.write_ns_per_byte = 0.5,
                           .read_ns_per_byte = 0.25,
                           .write_ns = 1'500'000,
                           .read_ns = 1'500'000,
                           .queue_depth = 8,
                           .takes_memory = takes_memory});
        const auto result = measured(tier);
        ASSERT_TRUE(result.has_value()) << result.error().message();
        expect_near(result->speed.write_bytes_per_s, 2e9, 0.05, "write bandwidth");
        expect_near(result->speed.read_bytes_per_s, 4e9, 0.10, "read bandwidth");
        EXPECT_EQ(result->speed.read_latency_ns, 1'500'000U + kPageBytes / 4);
        EXPECT_EQ(tier.most_in_flight(), 8U);
        EXPECT_EQ(tier.reservations(), 0U);
    }
}

TEST(Calibration, a_slow_medium_stops_at_its_share) {
    for (const std::size_t depth : {0, 32}) {
        for (const double ns_per_byte : {1000.0, 100.0, 20.0, 5.0}) {  // from 1 MB/s on
            ScriptedTier tier({.write_ns_per_byte = ns_per_byte,
                               .read_ns_per_byte = ns_per_byte / 2,
                               .write_ns = 100'000,
                               .read_ns = 100'000,
                               .queue_depth = depth,
                               .block_bytes = 256 << 10});
            const auto result = measured(tier);
            ASSERT_TRUE(result.has_value()) << result.error().message();
            expect_near(result->speed.write_bytes_per_s, 1e9 / ns_per_byte, 0.05, "write");
            expect_near(result->speed.read_bytes_per_s, 2e9 / ns_per_byte, 0.05, "read");
            // What is under way is finished: on the slowest that is one block each time.
            const double allowed = ns_per_byte >= 1000 && depth > 0 ? 1.6 : 1.2;
            EXPECT_LE(static_cast<double>(tier.now_ns()), allowed * kBudgetNs)
                << ns_per_byte << " ns a byte, depth " << depth;
        }
    }
}

TEST(Calibration, a_fast_medium_does_not_use_up_its_share) {
    ScriptedTier tier({.write_ns_per_byte = 0.1, .read_ns_per_byte = 0.1});
    ASSERT_TRUE(measured(tier).has_value());
    EXPECT_LT(tier.now_ns(), kBudgetNs / 4);
}

TEST(Calibration, takes_a_quarter_of_the_room_and_64_mib_at_most) {
    const std::pair<std::uint64_t, std::uint64_t> expected[] = {{0, 0},
                                                                {kPageBytes - 1, 0},
                                                                {kPageBytes, kPageBytes},
                                                                {kMi, kMi / 4},
                                                                {100 << 10, 16 << 10},
                                                                {30 * kMi, 4 * kMi},
                                                                {50 * kMi, 12 * kMi},
                                                                {1 << 30, 64 * kMi}};
    for (const auto& [capacity, sample] : expected) {
        ScriptedTier tier({.capacity_bytes = capacity});
        EXPECT_EQ(calibration_sample_bytes(tier), sample) << capacity;
        const auto result = measured(tier);
        ASSERT_EQ(result.has_value(), sample > 0) << capacity;
        EXPECT_EQ(tier.usage().peak_bytes, sample) << capacity;
        if (result) {
            EXPECT_EQ(result->sample_bytes, sample);
            EXPECT_GT(result->speed.read_bytes_per_s, 0U);
        } else {
            EXPECT_EQ(result.error().code(), Errc::no_space);
        }
    }
}

TEST(Calibration, does_with_the_room_that_the_medium_really_has) {
    ScriptedTier tier({.medium_bytes = 9 * kMi});
    const auto result = measured(tier);
    ASSERT_TRUE(result.has_value()) << result.error().message();
    EXPECT_EQ(result->sample_bytes, 8 * kMi);
    ScriptedTier full({.medium_bytes = kPageBytes});
    EXPECT_EQ(measured(full).error().code(), Errc::no_space);
}

TEST(Calibration, leaks_nothing_whatever_fails) {
    for (const std::size_t depth : {0, 4}) {
        for (const bool takes_memory : {true, false}) {
            TierScript script{.kind = TierKind::pmem,
                              .capacity_bytes = 32 * kMi,
                              .queue_depth = depth,
                              .takes_memory = takes_memory};
            std::uint64_t calls = 0;
            {
                ScriptedTier tier(script);
                ASSERT_TRUE(measured(tier).has_value());
                calls = tier.calls();
            }
            // All of the first, where every kind of call is made, and then some.
            std::uint64_t failures = 0;
            for (std::uint64_t call = 1; call <= calls; call += call < 60 ? 1 : 37) {
                script.failing_call = call;
                ScriptedTier tier(script);
                const auto result = measured(tier);
                ASSERT_FALSE(result.has_value()) << "call " << call << " of " << calls;
                EXPECT_EQ(result.error().code(), Errc::io);
                EXPECT_EQ(tier.reservations(), 0U);
                ++failures;
            }
            EXPECT_GT(failures, 50U);
        }
    }
}

TEST(Calibration, the_fewest_writers_within_five_percent_are_best) {
    using Rates = std::vector<WriterRate>;
    EXPECT_EQ(fewest_good_writers({}), 1U);
    EXPECT_EQ(fewest_good_writers(Rates{{1, 100}}), 1U);
    EXPECT_EQ(fewest_good_writers(Rates{{1, 95}, {2, 100}}), 1U);
    EXPECT_EQ(fewest_good_writers(Rates{{1, 94}, {2, 100}}), 2U);
    EXPECT_EQ(fewest_good_writers(Rates{{1, 50}, {2, 96}, {4, 100}, {8, 60}}), 2U);
    EXPECT_EQ(fewest_good_writers(Rates{{1, 50}, {2, 100}, {4, 200}, {8, 400}}), 8U);
}

// Takes real time, because threads share it: a byte is written only under one of a few permits.
class CrowdedTier final : public InertTier {
   public:
    explicit CrowdedTier(int permits)
        : InertTier({.kind = TierKind::pmem, .capacity_bytes = 256 * kMi}), permits_(permits) {}
    Result<Extent> reserve(std::uint64_t size_bytes) noexcept override {
        return Extent{TierId{}, 0, size_bytes};
    }
    Result<void> write(const Extent&, std::uint64_t, std::span<const std::byte>) noexcept override {
        std::unique_lock lock(mutex_);
        freed_.wait(lock, [this] { return permits_ > 0; });
        --permits_;
        lock.unlock();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        lock.lock();
        ++permits_;
        freed_.notify_one();
        return ok();
    }

   private:
    std::mutex mutex_;  // guards permits_
    std::condition_variable freed_;
    int permits_;
};

TEST(Calibration, finds_how_many_writers_a_medium_bears) {
    for (const int permits : {1, 4}) {
        CrowdedTier tier(permits);
        const auto result = calibrate(tier, {.budget_ns = 1'500'000'000, .most_writers = 8});
        ASSERT_TRUE(result.has_value()) << result.error().message();
        EXPECT_EQ(result->speed.best_writers, static_cast<std::uint32_t>(permits));
    }
}

TEST(Calibration, real_tiers_are_measured_in_two_seconds_together) {
    const ScratchFolder folder;
    std::vector<std::unique_ptr<Tier>> tiers;
    for (const Specimen specimen : {Specimen::dram, Specimen::pmem, Specimen::swap}) {
        auto tier = make_tier(specimen, folder, 512 * kMi, static_cast<TierId>(tiers.size()));
        ASSERT_TRUE(tier.has_value()) << tier.error().message();
        tiers.push_back(std::move(*tier));
    }
    const auto start = std::chrono::steady_clock::now();
    for (const auto& tier : tiers) {
        const auto result = calibrate(*tier, {.budget_ns = kCalibrationBudgetNs / tiers.size()});
        ASSERT_TRUE(result.has_value()) << result.error().message();
        const TierSpeed& speed = result->speed;
        std::printf(
            "[ measured ] %s: read %.2f GiB/s, write %.2f GiB/s, a page %.1f us, %.1f us, "
            "%u writers\n",
            name(tier->info().kind).data(), static_cast<double>(speed.read_bytes_per_s) / (1 << 30),
            static_cast<double>(speed.write_bytes_per_s) / (1 << 30),
            static_cast<double>(speed.read_latency_ns) / 1e3,
            static_cast<double>(speed.write_latency_ns) / 1e3, speed.best_writers);
        EXPECT_GT(speed.read_bytes_per_s, 0U);
        EXPECT_GT(speed.write_bytes_per_s, 0U);
        EXPECT_GT(speed.read_latency_ns, 0U);
        EXPECT_GT(speed.write_latency_ns, 0U);
        EXPECT_GE(speed.best_writers, 1U);
        EXPECT_EQ(tier->usage().used_bytes, 0U);
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    std::printf("[ measured ] three tiers in %.2f s\n", took.count());
    RecordProperty("seconds", std::to_string(took.count()));
    EXPECT_LT(took.count(), 2.0);
}

}  // namespace
}  // namespace frostline
