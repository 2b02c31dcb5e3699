// Proves FreeExtents against a map of single units: it never gives what is taken, finds what fits,
// merges what touches, and does the same for the same calls.
#include "tiers/free_extents.h"
#include "tests/tiers/seed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace frostline {
namespace {

// One flag per unit, and every rule in its most naive form.
class UnitMap {
   public:
    explicit UnitMap(std::size_t units) : free_(units, true) {}

    /// Where best fit, lowest offset first, has to put it.
    std::optional<std::uint64_t> best_fit(std::uint64_t size) const {
        std::optional<std::pair<std::uint64_t, std::uint64_t>> best;  // (length, offset)
        for (const auto& run : runs()) {
            if (run.first >= size && (!best || run < *best)) best = run;
        }
        return best ? std::optional(best->second) : std::nullopt;
    }
    std::optional<std::uint64_t> best_aligned_fit(std::uint64_t size,
                                                  std::uint64_t alignment) const {
        auto all = runs();
        std::sort(all.begin(), all.end());
        for (const auto& [length, start] : all) {
            std::uint64_t at = start;
            while (at % alignment != 0) ++at;
            if (at + size <= start + length) return at;
        }
        return std::nullopt;
    }
    void set(std::uint64_t offset, std::uint64_t size, bool free) {
        std::fill_n(free_.begin() + static_cast<long>(offset), size, free);
    }
    bool all(std::uint64_t offset, std::uint64_t size, bool free) const {
        return std::all_of(free_.begin() + static_cast<long>(offset),
                           free_.begin() + static_cast<long>(offset + size),
                           [free](bool each) { return each == free; });
    }
    std::uint64_t free_units() const {
        return static_cast<std::uint64_t>(std::count(free_.begin(), free_.end(), true));
    }
    std::uint64_t largest() const {
        std::uint64_t largest = 0;
        for (const auto& run : runs()) largest = std::max(largest, run.first);
        return largest;
    }

   private:
    std::vector<std::pair<std::uint64_t, std::uint64_t>> runs() const {
        std::vector<std::pair<std::uint64_t, std::uint64_t>> found;
        for (std::size_t at = 0; at < free_.size(); ++at) {
            if (!free_[at]) continue;
            const std::size_t start = at;
            while (at < free_.size() && free_[at]) ++at;
            found.emplace_back(at - start, start);
        }
        return found;
    }
    std::vector<bool> free_;
};

std::uint64_t largest(const FreeExtents& extents) {
    std::uint64_t most = 0;
    for (const auto& [offset, size] : extents.ranges()) most = std::max(most, size);
    return most;
}

void expect_same(const FreeExtents& extents, const UnitMap& map) {
    ASSERT_EQ(extents.free_bytes(), map.free_units());
    ASSERT_EQ(largest(extents), map.largest());
}

TEST(FreeExtents, AgreesWithAMapOfUnitsUnderRandomUse) {
    auto random = random_stream(20);
    for (int round = 0; round < 40; ++round) {
        const std::uint64_t units = between(random, 0, 300);
        FreeExtents extents(units);
        UnitMap map(units);
        std::vector<std::pair<std::uint64_t, std::uint64_t>> taken;
        for (int step = 0; step < 400; ++step) {
            const std::uint64_t choice = between(random, 0, 99);
            if (choice < 55 || taken.empty()) {
                const std::uint64_t size = between(random, 1, 40);
                const auto offset = extents.take(size);
                ASSERT_EQ(offset, map.best_fit(size)) << "size " << size;
                if (!offset) continue;
                ASSERT_TRUE(map.all(*offset, size, true)) << "given twice";
                map.set(*offset, size, false);
                taken.emplace_back(*offset, size);
            } else if (choice < 62) {
                const std::uint64_t size = between(random, 1, 40);
                const std::uint64_t alignment = between(random, 1, 16);
                const auto offset = extents.find(size, alignment);
                ASSERT_EQ(offset, map.best_aligned_fit(size, alignment))
                    << size << " " << alignment;
                if (!offset) continue;
                extents.take_at(*offset, size);
                map.set(*offset, size, false);
                taken.emplace_back(*offset, size);
            } else if (choice < 80) {
                std::swap(taken[between(random, 0, taken.size() - 1)], taken.back());
                const auto [offset, size] = taken.back();
                taken.pop_back();
                extents.give(offset, size);
                map.set(offset, size, true);
            } else {
                const std::uint64_t offset = between(random, 0, units);
                const std::uint64_t size = between(random, 1, 10);
                if (offset + size > units || !map.all(offset, size, true)) continue;
                extents.take_at(offset, size);
                map.set(offset, size, false);
                taken.emplace_back(offset, size);
            }
            expect_same(extents, map);
            if (HasFatalFailure()) return;
        }
        for (const auto& [offset, size] : taken) extents.give(offset, size);
        EXPECT_EQ(largest(extents), extents.capacity_bytes()) << "not merged into one";
    }
}

TEST(FreeExtents, MergesOnEitherSideAndBoth) {
    FreeExtents extents(100);
    ASSERT_EQ(extents.take(100), 0U);
    extents.give(10, 10);
    extents.give(30, 10);
    EXPECT_EQ(largest(extents), 10U);
    extents.give(20, 10);  // closes the gap
    EXPECT_EQ(largest(extents), 30U);
    extents.give(0, 10);  // in front
    EXPECT_EQ(largest(extents), 40U);
    extents.give(40, 60);  // behind
    EXPECT_EQ(largest(extents), 100U);
    EXPECT_EQ(extents.take(100), 0U);
}

TEST(FreeExtents, PartsOfARangeMayBeGivenBackOneByOne) {
    FreeExtents extents(64);
    ASSERT_EQ(extents.take(64), 0U);
    for (std::uint64_t at = 0; at < 64; at += 2) extents.give(at, 1);
    EXPECT_EQ(largest(extents), 1U);
    EXPECT_EQ(extents.take(2), std::nullopt);
    for (std::uint64_t at = 1; at < 64; at += 2) extents.give(at, 1);
    EXPECT_EQ(extents.take(64), 0U);
}

TEST(FreeExtents, TheSmallestGapThatFitsIsUsedAndTheLowestAmongEquals) {
    FreeExtents extents(100);
    ASSERT_EQ(extents.take(100), 0U);
    extents.give(0, 20);
    extents.give(30, 5);
    extents.give(50, 5);
    EXPECT_EQ(extents.take(5), 30U);
    EXPECT_EQ(extents.take(4), 50U);
    EXPECT_EQ(extents.take(6), 0U);
}

TEST(FreeExtents, SameCallsSamePlaces) {
    const auto places = [](std::uint64_t stream) {
        auto random = random_stream(stream);
        FreeExtents extents(10000);
        std::vector<std::pair<std::uint64_t, std::uint64_t>> taken;
        std::vector<std::uint64_t> offsets;
        for (int step = 0; step < 2000; ++step) {
            const std::uint64_t size = between(random, 1, 500);
            if (const auto offset = extents.take(size)) {
                taken.emplace_back(*offset, size);
                offsets.push_back(*offset);
            } else {
                const std::size_t index = between(random, 0, taken.size() - 1);
                extents.give(taken[index].first, taken[index].second);
                taken.erase(taken.begin() + static_cast<long>(index));
            }
        }
        return offsets;
    };
    EXPECT_EQ(places(21), places(21));
}

TEST(FreeExtents, NothingIsTakenFromNothing) {
    FreeExtents extents(0);
    EXPECT_EQ(extents.take(1), std::nullopt);
    EXPECT_EQ(largest(extents), 0U);
    FreeExtents seven(7);
    EXPECT_EQ(seven.take(0), std::nullopt);
    EXPECT_EQ(seven.take(UINT64_MAX), std::nullopt);
    EXPECT_EQ(seven.take(7), 0U);
}

class FreeExtentsDeathTest : public testing::Test {
   protected:
    FreeExtentsDeathTest() {
        testing::GTEST_FLAG(death_test_style) = "threadsafe";
        extents_.take(100);
        extents_.give(20, 10);  // [20, 30) is free
    }
    FreeExtents extents_{100};
};

TEST_F(FreeExtentsDeathTest, EveryWayToGiveARangeTwiceEndsTheProgram) {
    EXPECT_DEATH(extents_.give(20, 10), "given back twice");  // the same
    EXPECT_DEATH(extents_.give(22, 3), "given back twice");   // inside
    EXPECT_DEATH(extents_.give(15, 6), "given back twice");   // overlaps its start
    EXPECT_DEATH(extents_.give(29, 6), "given back twice");   // overlaps its end
    EXPECT_DEATH(extents_.give(10, 30), "given back twice");  // contains it
}

TEST_F(FreeExtentsDeathTest, RangesOutsideEndTheProgram) {
    EXPECT_DEATH(extents_.give(95, 6), "outside");
    EXPECT_DEATH(extents_.give(100, 1), "outside");
    EXPECT_DEATH(extents_.give(50, 0), "outside");
    EXPECT_DEATH(extents_.give(UINT64_MAX - 3, 8), "outside");  // wraps around
    EXPECT_DEATH(extents_.give(40, UINT64_MAX - 20), "outside");
}

}  // namespace
}  // namespace frostline
