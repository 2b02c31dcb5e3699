// Proves that heaps that share a budget never have more together, and that a lowered limit only
// lets it shrink.
#include "allocator/heap/heap_budget.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace frostline {
namespace {

TEST(HeapBudget, GivesWhatItHas) {
    HeapBudget budget(100);
    EXPECT_TRUE(budget.take(60));
    EXPECT_FALSE(budget.take(41));
    EXPECT_FALSE(budget.take(UINT64_MAX)) << "the sum would overflow";
    EXPECT_TRUE(budget.take(40));
    budget.give(60);
    EXPECT_EQ(budget.used_bytes(), 40U);
    EXPECT_EQ(budget.peak_bytes(), 100U);
    EXPECT_EQ(budget.taken_bytes(), 100U);
    budget.reset_peak();
    EXPECT_EQ(budget.peak_bytes(), 40U);
}

TEST(HeapBudget, ALoweredLimitOnlyLetsItShrink) {
    HeapBudget budget(100);
    ASSERT_TRUE(budget.take(80));
    budget.set_limit(50);
    EXPECT_FALSE(budget.take(1));
    budget.give(40);
    EXPECT_TRUE(budget.take(10));
    EXPECT_FALSE(budget.take(1));
}

TEST(HeapBudget, SaysWhatItHasAndTakesNothing) {
    HeapBudget budget(100);
    EXPECT_TRUE(budget.has(100));
    ASSERT_TRUE(budget.take(60));
    EXPECT_TRUE(budget.has(40));
    EXPECT_FALSE(budget.has(41));
    budget.set_limit(50);
    EXPECT_FALSE(budget.has(0)) << "it is exceeded already";
    EXPECT_FALSE(budget.has(UINT64_MAX));
    EXPECT_EQ(budget.used_bytes(), 60U);
}

TEST(HeapBudget, ThreadsNeverExceedItTogether) {
    HeapBudget budget(1000);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&] {
            for (int round = 0; round < 10'000; ++round) {
                if (!budget.take(300)) continue;
                EXPECT_LE(budget.used_bytes(), 1000U);
                budget.give(300);
            }
        });
    }
    for (std::thread& each : threads) each.join();
    EXPECT_EQ(budget.used_bytes(), 0U);
    EXPECT_LE(budget.peak_bytes(), 1000U);
}

}  // namespace
}  // namespace frostline
