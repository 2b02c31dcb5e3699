// Proves what a heap records of births and deaths: all of them, in their order, on whatever thread;
// and that a heap which could not record all says so.
#include "allocator/heap/heap_trace.h"
#include "tests/allocator/heap/heap_fixture.h"
#include "tests/tiers/allocation_faults.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace frostline {
namespace {

class HeapTraces : public DeviceHeapFixture {
   protected:
    void SetUp() override {
        HeapOptions options;
        options.traced = true;
        make({}, options);
    }
    std::uint64_t birth_of(const void* block) { return heap_->describe(block)->birth; }
};

TEST_F(HeapTraces, BirthsAndDeathsOfAllThreadsAreInTheirOrder) {
    heap_->begin_step();
    void* const first = get(700);
    std::string expected = fmt::format("frostline-allocs 1\nstep\na {} 700\n", birth_of(first));
    std::uint64_t second_birth = 0;
    std::thread([&] {
        void* const second = get(1 << 20);
        second_birth = birth_of(second);
        put(first);
        put(second);
    }).join();
    expected += fmt::format("a {} {}\nf {}\nf {}\n", second_birth, 1 << 20, 1, second_birth);
    heap_->begin_step();
    expected += "step\n";
    EXPECT_EQ(heap_->trace(), expected);
    EXPECT_TRUE(heap_->trace_complete());
}

TEST_F(HeapTraces, AnEventThatFindsNoMemoryIsMissedAndTold) {
    void* const block = get(700);
    // A slot is cached already, so that nothing but the event needs memory.
    for (int i = 0; i < 1000 && heap_->trace_complete(); ++i) {
        const AllocationFault none(1, true);
        put(get(700));
    }
    EXPECT_FALSE(heap_->trace_complete());
    put(block);
    EXPECT_EQ(heap_->statistics().live_blocks, 0U);
}

TEST(HeapTrace, EndsWhereItIsTooLong) {
    HeapTrace trace;
    std::vector<HeapEvent> events;
    events.reserve(1);
    for (std::uint64_t i = 0; i < HeapTrace::kMostEvents; ++i) {
        events.clear();
        trace.add(events, {0, i, 1, HeapEvent::Kind::birth});
    }
    EXPECT_TRUE(trace.complete());
    EXPECT_EQ(events.size(), 1U);
    trace.add(events, {0, 1, 1, HeapEvent::Kind::death});
    EXPECT_FALSE(trace.complete());
    EXPECT_EQ(events.size(), 1U);
}

}  // namespace
}  // namespace frostline
