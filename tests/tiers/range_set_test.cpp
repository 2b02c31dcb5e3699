// Proves RangeSet against one flag for each unit, and that it forgets nothing when memory runs out.
#include "tiers/range_set.h"
#include "tests/tiers/allocation_faults.h"
#include "tests/tiers/seed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <new>
#include <vector>

namespace frostline {
namespace {

constexpr std::uint64_t kUnits = 120;

class UnitFlags {
   public:
    void set(const Range& range, bool in) {
        for (std::uint64_t i = range.start; i < range.end; ++i) flags_[i] = in;
    }
    std::uint64_t count(const Range& window) const {
        std::uint64_t units = 0;
        for (std::uint64_t i = window.start; i < window.end; ++i) units += flags_[i] ? 1 : 0;
        return units;
    }
    std::optional<Range> last(const Range& window) const {
        std::uint64_t end = window.end;
        while (end > window.start && !flags_[end - 1]) --end;
        std::uint64_t start = end;
        while (start > window.start && flags_[start - 1]) --start;
        if (start == end) return std::nullopt;
        return Range{start, end};
    }
    std::optional<Range> first(const Range& window) const {
        std::uint64_t start = window.start;
        while (start < window.end && !flags_[start]) ++start;
        std::uint64_t end = start;
        while (end < window.end && flags_[end]) ++end;
        if (start == end) return std::nullopt;
        return Range{start, end};
    }

   private:
    std::vector<bool> flags_ = std::vector<bool>(kUnits);
};

Range random_range(std::mt19937_64& random) {
    const std::uint64_t start = between(random, 0, kUnits);
    return {start, between(random, start, std::min(kUnits, start + kUnits / 6))};
}

void expect_same(const RangeSet& set, const UnitFlags& flags, std::mt19937_64& random) {
    ASSERT_EQ(set.size_bytes(), flags.count({0, kUnits}));
    for (int i = 0; i < 4; ++i) {
        const std::uint64_t start = between(random, 0, kUnits);
        const Range window{start, between(random, start, kUnits)};
        ASSERT_EQ(set.size_bytes_in(window), flags.count(window));
        ASSERT_EQ(set.last_in(window), flags.last(window)) << window.start << " " << window.end;
        ASSERT_EQ(set.first_in(window), flags.first(window)) << window.start << " " << window.end;
    }
    ASSERT_EQ(set.last_in({0, kUnits}), flags.last({0, kUnits}));
}

TEST(RangeSet, AgreesWithAFlagForEachUnit) {
    auto random = random_stream(70);
    for (int round = 0; round < 50; ++round) {
        RangeSet set;
        UnitFlags flags;
        for (int step = 0; step < 200; ++step) {
            const Range range = random_range(random);
            const bool in = between(random, 0, 1) == 0;
            in ? set.add(range) : set.remove(range);
            flags.set(range, in);
            ASSERT_NO_FATAL_FAILURE(expect_same(set, flags, random));
        }
    }
}

TEST(RangeSet, WhatIsRefusedForWantOfMemoryChangesNothing) {
    auto random = random_stream(71);
    RangeSet set;
    UnitFlags flags;
    int refused = 0;
    for (int step = 0; step < 3000; ++step) {
        const Range range = random_range(random);
        const bool in = between(random, 0, 1) == 0;
        try {
            const AllocationFault fault(1, true);
            in ? set.add(range) : set.remove(range);
            flags.set(range, in);
        } catch (const std::bad_alloc&) {
            ++refused;
        }
        ASSERT_NO_FATAL_FAILURE(expect_same(set, flags, random));
        if (between(random, 0, 3) == 0) {  // so that there is something to lose
            const Range more = random_range(random);
            set.add(more);
            flags.set(more, true);
        }
    }
    EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace frostline
