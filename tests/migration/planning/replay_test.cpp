// What a replay tells of a legal schedule, and that it tells of want of memory.
#include "migration/planning/replay.h"

#include "tests/migration/planning/replay_scene.h"
#include "tests/tiers/allocation_faults.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace frostline {
namespace {

using Scene = ReplayScene;

TEST(Replay, SaysThatMemoryRanOut) {
    const Scene scene;
    std::uint64_t refused = 0;
    for (std::uint64_t fail_at = 1;; ++fail_at) {
        AllocationFault fault(fail_at);
        const auto verdict = replay(scene.trace, scene.machine, scene.schedule);
        if (!fault.struck()) break;
        // Sorting can do without the room that it asks for.
        if (verdict.has_value()) {
            ASSERT_TRUE(verdict->legal) << verdict->why;
            continue;
        }
        ASSERT_EQ(verdict.error().code(), Errc::out_of_memory);
        ++refused;
    }
    EXPECT_GT(refused, 10U);
}

TEST(Replay, TellsWhatALegalScheduleComesTo) {
    Scene scene;
    scene.delay_last_step(1);
    const ReplayVerdict verdict = *replay(scene.trace, scene.machine, scene.schedule);
    EXPECT_TRUE(verdict.legal) << verdict.why;
    EXPECT_EQ(verdict.steps, 3U);
    EXPECT_EQ(verdict.ideal_ns, 300U);
    EXPECT_EQ(verdict.step_ns, 2000.5);
    EXPECT_EQ(verdict.slowdown, 2000.5 / 300);
    EXPECT_EQ(verdict.peak_bytes, (std::vector<std::uint64_t>{1000, 100, 400}));
    EXPECT_EQ(verdict.moved_bytes, (std::vector<std::uint64_t>{300, 300, 1200, 1200, 0}));
}

}  // namespace
}  // namespace frostline
