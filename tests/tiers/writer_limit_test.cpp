// Proves that never more threads copy into a pmem tier than are allowed, that all of them get their
// turn, and who says how many.
#include "tiers/writer_limit.h"
#include "tests/tiers/tier_specimen.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace frostline {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// How many are inside now, and the most there were.
struct Crowd {
    std::atomic<int> inside{0};
    std::atomic<int> most{0};

    void pass() {
        const int now = ++inside;
        int seen = most.load();
        while (now > seen && !most.compare_exchange_weak(seen, now)) {
        }
        std::this_thread::yield();
        --inside;
    }
};

void in_threads(int count, const std::function<void(int)>& work) {
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i) threads.emplace_back(work, i);
    for (std::thread& each : threads) each.join();
}

TEST(WriterLimit, NeverMoreAtOnceThanAllowedAndNobodyIsLeftWaiting) {
    for (const std::uint32_t limit_count : {1U, 2U, 3U}) {
        WriterLimit limit(limit_count);
        Crowd crowd;
        std::atomic<int> turns{0};
        in_threads(8, [&](int) {
            for (int i = 0; i < 2000; ++i) {
                const WriterLimit::Place place(limit);
                crowd.pass();
                ++turns;
            }
        });
        EXPECT_EQ(turns, 16000);
        EXPECT_LE(crowd.most, static_cast<int>(limit_count));
    }
}

TEST(WriterLimit, WithoutALimitAllAreInsideTogether) {
    WriterLimit limit;
    std::atomic<int> inside{0};
    in_threads(6, [&](int) {
        const WriterLimit::Place place(limit);
        ++inside;
        while (inside < 6) std::this_thread::yield();  // ends only if nobody is kept out
    });
    EXPECT_EQ(inside, 6);
}

TEST(WriterLimit, AllPlacesAreUsed) {
    WriterLimit limit(3);
    std::atomic<int> inside{0};
    in_threads(3, [&](int) {
        const WriterLimit::Place place(limit);
        ++inside;
        while (inside < 3) std::this_thread::yield();  // ends only if three are let in
    });
    EXPECT_EQ(inside, 3);
}

// A tier that takes its file for pmem, and how many copy into it at once.
class LimitedPmemTier : public testing::Test {
   protected:
    static std::unique_ptr<PmemTier> limited_tier(std::uint32_t max_writers) {
        static const SystemCalls calls = [] {
            SystemCalls table = SystemCalls::real();
            table.pmem_map_file = [](const char* path, size_t length, int flags, mode_t mode,
                                     size_t* mapped, int* is_pmem) {
                void* const address =
                    SystemCalls::real().pmem_map_file(path, length, flags, mode, mapped, is_pmem);
                *is_pmem = 1;
                return address;
            };
            table.pmem_memcpy = [](void* to, const void* from, size_t length, unsigned) {
                crowd->pass();
                return std::memcpy(to, from, length);
            };
            return table;
        }();
        static const ScratchFolder folder;
        auto tier = PmemTier::create({.path = folder.file("pool"),
                                      .size_bytes = 8 * kMiB,
                                      .calls = &calls,
                                      .max_writers = max_writers});
        EXPECT_TRUE(tier.has_value()) << tier.error().message();
        return *std::move(tier);
    }
    /// The most that copied at once when six threads write and read back.
    static int most_writers(PmemTier& tier) {
        Crowd fresh;
        crowd = &fresh;
        in_threads(6, [&](int i) {
            const auto extent = tier.reserve(kMiB);
            ASSERT_TRUE(extent.has_value());
            const Bytes bytes(kPageBytes, static_cast<std::byte>(i));
            for (std::uint64_t at = 0; at < kMiB; at += kPageBytes) {
                ASSERT_TRUE(tier.write(*extent, at, bytes).has_value());
            }
            ASSERT_TRUE(tier.fence(*extent).has_value());
            ASSERT_TRUE(read_all(tier, *extent) == Bytes(kMiB, static_cast<std::byte>(i)));
            tier.release(*extent);
        });
        return fresh.most;
    }

    static inline Crowd* crowd = nullptr;
};

TEST_F(LimitedPmemTier, NoMoreThanTheOptionSaysCopyAtOnce) {
    const auto tier = limited_tier(2);
    EXPECT_LE(most_writers(*tier), 2);
    tier->calibrated({.write_bytes_per_s = 1, .best_writers = 5});
    EXPECT_LE(most_writers(*tier), 2) << "a measurement does not overrule who was explicit";
}

TEST_F(LimitedPmemTier, WithoutAnOptionTheMeasurementDecides) {
    const auto tier = limited_tier(0);
    tier->calibrated({.write_bytes_per_s = 1, .best_writers = 1});
    EXPECT_LE(most_writers(*tier), 1);
    EXPECT_EQ(tier->info().speed.best_writers, 1U);
}

TEST_F(LimitedPmemTier, WithoutEitherThereIsNoLimit) {
    const auto tier = limited_tier(0);
    tier->calibrated({});  // nothing was measured
    // Seen together sooner or later; a limit of one would never show it.
    int most = 0;
    for (int i = 0; i < 200 && most < 2; ++i) most = std::max(most, most_writers(*tier));
    EXPECT_GE(most, 2);
}

}  // namespace
}  // namespace frostline
