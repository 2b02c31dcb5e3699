// A tier's slots against a plain list of numbers.
#include "migration/planning/occupancy.h"
#include "tests/tiers/seed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace frostline {
namespace {

constexpr std::int64_t kNothing = INT64_MIN / 4;

class PlainOccupancy {
   public:
    explicit PlainOccupancy(std::vector<std::int64_t> bytes) : bytes_(std::move(bytes)) {}

    void add(SlotIndex from, SlotIndex to, std::int64_t bytes) {
        for (SlotIndex i = from; i < to; ++i) at(i) += bytes;
    }
    std::int64_t most(SlotIndex from, SlotIndex to) {
        std::int64_t most = kNothing;
        for (SlotIndex i = from; i < to; ++i) most = std::max(most, at(i));
        return most;
    }
    SlotIndex first_above(SlotIndex from, std::int64_t limit) {
        for (SlotIndex i = from; i < size(); ++i) {
            if (at(i) > limit) return i;
        }
        return -1;
    }
    SlotIndex last_above(SlotIndex to, std::int64_t limit) {
        for (SlotIndex i = to - 1; i >= 0; --i) {
            if (at(i) > limit) return i;
        }
        return -1;
    }
    SlotIndex size() const { return static_cast<SlotIndex>(bytes_.size()); }

   private:
    std::int64_t& at(SlotIndex slot) { return bytes_[static_cast<std::size_t>(slot)]; }
    std::vector<std::int64_t> bytes_;
};

SlotIndex slot_up_to(std::mt19937_64& random, SlotIndex last) {
    return static_cast<SlotIndex>(between(random, 0, static_cast<std::uint64_t>(last)));
}

TEST(Occupancy, AgreesWithAPlainList) {
    auto random = random_stream(620);
    for (int round = 0; round < 300; ++round) {
        std::vector<std::int64_t> start(between(random, 1, 70));
        for (std::int64_t& each : start) {
            each = static_cast<std::int64_t>(between(random, 0, 100));
        }
        PlainOccupancy plain(start);
        Occupancy tree(start);
        for (int i = 0; i < 200; ++i) {
            const SlotIndex a = slot_up_to(random, plain.size());
            const SlotIndex b = slot_up_to(random, plain.size());
            const auto bytes = static_cast<std::int64_t>(between(random, 0, 200)) - 100;
            plain.add(a, b, bytes);
            tree.add(a, b, bytes);
            const SlotIndex from = slot_up_to(random, plain.size());
            const SlotIndex to = slot_up_to(random, plain.size());
            const auto limit = static_cast<std::int64_t>(between(random, 0, 600)) - 300;
            ASSERT_EQ(tree.most(from, to), plain.most(from, to));
            ASSERT_EQ(tree.first_above(from, limit), plain.first_above(from, limit));
            ASSERT_EQ(tree.last_above(to, limit), plain.last_above(to, limit));
        }
    }
}

TEST(Occupancy, HasNothingBehindItsEnd) {
    // Three slots, and a tree of four leaves: the fourth never holds anything.
    const std::vector<std::int64_t> start{5, 5, 5};
    const Occupancy tree(start);
    EXPECT_EQ(tree.first_above(3, -1000), -1);
    EXPECT_EQ(tree.last_above(4, -1000), 2);
    EXPECT_EQ(tree.most(2, 4), 5);
}

TEST(Occupancy, KeepsSumsOfPebibytes) {
    const std::vector<std::int64_t> start(3, std::int64_t{1} << 53);
    Occupancy tree(start);
    for (int i = 0; i < 100; ++i) tree.add(0, 2, std::int64_t{1} << 53);
    EXPECT_EQ(tree.most(0, 3), std::int64_t{101} << 53);
    EXPECT_EQ(tree.first_above(0, (std::int64_t{101} << 53) - 1), 0);
    EXPECT_EQ(tree.last_above(3, std::int64_t{1} << 53), 1);
}

}  // namespace
}  // namespace frostline
