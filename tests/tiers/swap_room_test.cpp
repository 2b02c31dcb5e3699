// Proves the bookkeeping of swap room against a map of pages: nothing is given twice, nothing is
// used without blocks, and holes are made only where nobody is.
#include "tiers/swap_room.h"
#include "tests/tiers/seed.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace frostline {
namespace {

bool empty(const Range& range) {
    return range.size_bytes() == 0;
}

TEST(SwapRoom, AgreesWithAMapOfPagesUnderRandomUse) {
    auto random = random_stream(55);
    constexpr std::uint64_t kPages = 200;
    for (int round = 0; round < 30; ++round) {
        SwapRoom room({.capacity_bytes = kPages,
                       .growth_bytes = between(random, 1, 20),
                       .keep_ns = between(random, 0, 50)});
        std::vector<bool> used(kPages);
        std::vector<bool> blocks(kPages);
        std::vector<Range> held;
        const auto set = [](std::vector<bool>& map, const Range& range, bool value) {
            for (std::uint64_t at = range.start; at < range.end; ++at) {
                ASSERT_NE(map[at], value) << "at " << at;
                map[at] = value;
            }
        };
        for (std::uint64_t now = 0; now < 500; ++now) {
            if (held.empty() || between(random, 0, 1) == 0) {
                const std::uint64_t size = between(random, 1, 30);
                auto offset = room.find(size);
                if (offset && between(random, 0, 4) == 0) {
                    offset = room.find_allocated(size);  // as if the disk were full
                    if (offset) {
                        ASSERT_TRUE(empty(room.missing(*offset, size)));
                    }
                }
                if (!offset) continue;
                for (Range gap = room.missing(*offset, size); !empty(gap);
                     gap = room.missing(*offset, size)) {
                    const Range step = room.growth_step(gap);
                    ASSERT_EQ(step.start, gap.start);
                    ASSERT_GE(step.end, gap.end);
                    ASSERT_LE(step.end, kPages);
                    // A step may reach over blocks that are there; a hole in between counts.
                    for (std::uint64_t at = step.start; at < step.end; ++at) {
                        ASSERT_FALSE(used[at]) << "a growth step over what is used";
                        blocks[at] = true;
                    }
                    room.add_blocks(step);
                }
                const Range taken{*offset, *offset + size};
                room.take(*offset, size, now);
                set(used, taken, true);
                for (std::uint64_t at = taken.start; at < taken.end; ++at) {
                    ASSERT_TRUE(blocks[at]) << "used without blocks";
                }
                held.push_back(taken);
            } else {
                std::swap(held[between(random, 0, held.size() - 1)], held.back());
                room.give(held.back().start, held.back().end - held.back().start, now);
                set(used, held.back(), false);
                held.pop_back();
                while (true) {
                    const std::uint64_t most = between(random, 1, 40);
                    const Range hole = room.next_hole(now, most);
                    if (empty(hole)) break;
                    ASSERT_LE(hole.size_bytes(), most);
                    for (std::uint64_t at = hole.start; at < hole.end; ++at) {
                        ASSERT_FALSE(used[at]) << "a hole where somebody is";
                        ASSERT_TRUE(blocks[at]) << "a hole in a hole";
                        blocks[at] = false;
                    }
                }
            }
            std::uint64_t allocated = 0;
            for (const bool each : blocks) allocated += each ? 1 : 0;
            ASSERT_EQ(room.allocated_bytes(), allocated);
        }
        for (const Range& each : held) room.give(each.start, each.end - each.start, 500);
        EXPECT_EQ(room.find(kPages), 0U) << "room leaked";
    }
}

TEST(SwapRoom, APeakKeepsItsBlocksForAWhile) {
    SwapRoom room({.capacity_bytes = 100, .growth_bytes = 1, .keep_ns = 10});
    room.add_blocks(Range{0, 100});
    room.take(0, 80, 1);
    room.give(0, 80, 2);
    EXPECT_EQ(room.next_hole(3, 100).end, 100U) << "what the peak did not need";
    SwapRoom other({.capacity_bytes = 100, .growth_bytes = 1, .keep_ns = 10});
    other.add_blocks(Range{0, 80});
    other.take(0, 80, 1);
    other.give(0, 80, 2);
    EXPECT_TRUE(empty(other.next_hole(9, 100)));
    EXPECT_TRUE(empty(other.next_hole(12, 100))) << "the span before counts";
    EXPECT_FALSE(empty(other.next_hole(30, 100)));
}

}  // namespace
}  // namespace frostline
