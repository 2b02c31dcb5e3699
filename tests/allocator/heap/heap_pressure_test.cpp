// Proves what a heap does when memory is short: what is cached goes back first, what is in use
// stays, whoever can make room is asked, and a refusal of the backing, of whichever call and
// whichever time, loses nothing and leaves a heap that goes on.
#include "tests/allocator/heap/heap_fixture.h"
#include "tests/tiers/allocation_faults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace frostline {
namespace {

using testing::HasSubstr;

class HeapPressure : public DeviceHeapFixture {
   protected:
    /// A bit of everything that a heap does: slots, windows, streams, trims. Errors are let
    /// through.
    void live_a_little() {
        std::array<void*, 32> blocks{};
        std::size_t count = 0;
        const auto keep = [&](std::uint64_t size, StreamHandle stream) {
            const auto block = heap_->allocate(size, stream);
            if (block) blocks[count++] = *block;
        };
        for (const StreamHandle stream : {1, 2}) {
            for (const std::uint64_t size : {600, 5000, 50000, 300000, 500000, 900000}) {
                keep(size, stream);
                keep(size, stream);
            }
            queue(stream);
        }
        for (std::size_t i = 0; i < count; i += 2) {
            (void)heap_->record_stream(blocks[i], 2);
            EXPECT_TRUE(heap_->free(blocks[i]));
            blocks[i] = nullptr;
        }
        for (int i = 0; i < 3; ++i) keep(1500000, 1);
        (void)heap_->trim();
        finish(2);
        for (int i = 0; i < 2; ++i) keep(1500000, 2);
        for (void* const block : blocks) EXPECT_TRUE(heap_->free(block));
        (void)heap_->trim(true);
    }
    /// The same while the nth allocation of the heap's own fails. Whether there was one.
    bool live_a_little_without(std::uint64_t nth) {
        for (const StreamHandle stream : {1, 2}) queue(stream);
        const AllocationFault fault(nth);
        live_a_little();
        return fault.struck();
    }
};

TEST_F(HeapPressure, SmallAndLargeBlocksShareAChunkWhenThereIsNoOther) {
    for (const auto& [first, second] : {std::pair<std::uint64_t, std::uint64_t>{100, kChunk / 2},
                                        {kChunk / 2, 100},
                                        {kChunk / 2, 100'000}}) {
        make({kChunk, 16, 16, 16, 1});
        void* const a = get(first);
        void* const b = get(second);
        heap_->check();
        put(a);
        put(b);
        EXPECT_EQ(heap_->trim(true).value_or(0), kChunk);
    }
}

TEST_F(HeapPressure, ATrimGivesBackAllThatNobodyUsesAndNothingElse) {
    make({kChunk, 256, 64, 512, 128});
    std::vector<void*> kept;
    std::vector<void*> freed;
    for (int i = 0; i < 50; ++i) {
        for (const std::uint64_t size : {600, 7000, 90000, 300000}) {
            (i < 2 ? kept : freed).push_back(get(size));
        }
    }
    for (void* const block : freed) put(block);
    const std::uint64_t before = heap_->statistics().mapped;
    const auto trimmed = heap_->trim();
    EXPECT_EQ(*trimmed, before - heap_->statistics().mapped);
    EXPECT_LE(heap_->statistics().mapped, 6 * kChunk);
    for (void* const block : kept) {
        EXPECT_TRUE(memory_->is_backed(number(block)));
        put(block);
    }
    ASSERT_TRUE(heap_->trim());
    EXPECT_EQ(heap_->statistics().mapped, 0U);
    EXPECT_EQ(heap_->statistics().free, 0U);
    EXPECT_EQ(*heap_->trim(), 0U);
}

TEST_F(HeapPressure, WhatCachesHoldServesAnyRequestBeforeTheHeapGrows) {
    make({kChunk, 64, 16, 64, 4});
    std::vector<void*> slots;
    for (int i = 0; i < 4 * 4 * 60; ++i) slots.push_back(get(1024));
    EXPECT_EQ(heap_->statistics().mapped, 4 * kChunk);
    for (void* const slot : slots) put(slot);
    EXPECT_GT(heap_->statistics().cached, 0U);
    put(get(4 * kChunk));
    put(get(2048));
    put(get(100 * kKi));
}

TEST_F(HeapPressure, ALargeRequestNeverFailsWhileEnoughChunksAreFree) {
    make({kChunk, 64, 16, 256, 32});
    std::vector<void*> blocks;
    for (int i = 0; i < 32; ++i) blocks.push_back(get(kChunk));
    for (std::size_t i = 0; i < blocks.size(); i += 2) put(blocks[i]);
    void* const large = get(16 * kChunk);
    EXPECT_FALSE(heap_->allocate(1, 1));
    put(large);
    for (std::size_t i = 1; i < blocks.size(); i += 2) put(blocks[i]);
    put(get(32 * kChunk));
}

TEST_F(HeapPressure, WhenTheDeviceHasLessThanTheBudgetWhatLiesIdleIsGivenUp) {
    put(get(700 * kKi));
    memory_->leave_chunks(3);
    put(get(700 * kKi, 1, 1024 * kKi));
    const auto refused = heap_->allocate(4 * kChunk, 1);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), Errc::no_space);
    memory_->leave_chunks(4);
    put(get(4 * kChunk));
}

TEST_F(HeapPressure, ARefusalSaysWhereTheMemoryIs) {
    make({kChunk, 64, 16, 64, 16});
    void* const held = get(8 * kChunk, 1);
    void* const pending = get(4 * kChunk, 1);
    ASSERT_TRUE(heap_->record_stream(pending, 2));
    queue(2);
    capture(2, true);
    put(pending);
    const auto refused = heap_->allocate(9 * kChunk, 1);
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message(), HasSubstr("no room for 2359296 bytes"));
    EXPECT_THAT(refused.error().message(), HasSubstr("of 4.00 MiB are mapped"));
    EXPECT_THAT(refused.error().message(), HasSubstr("1.00 wait for other streams"));
    EXPECT_THAT(refused.error().message(),
                HasSubstr("and the rest is in use; free some, or raise the capacity"));
    capture(2, false);
    put(held);
}

TEST_F(HeapPressure, ATrimSaysWhyTheBackingKeepsMemory) {
    put(get(700 * kKi));
    memory_->refuse(BackingCall::unback, 1);
    const auto trimmed = heap_->trim();
    ASSERT_FALSE(trimmed);
    EXPECT_THAT(trimmed.error().message(), HasSubstr("refused, as the test asked for"));
    EXPECT_EQ(heap_->statistics().mapped, 3 * kChunk);
    EXPECT_EQ(heap_->statistics().free, 0U);
    put(get(700 * kKi));
    heap_.reset();
}

TEST_F(HeapPressure, WhatLiesIdleBesideTheOnlyPlaceToGrowIsUsedForIt) {
    make({kChunk, 8, 8, 8, 8});
    void* const first = get(kChunk - 1024);
    put(get(2 * kChunk, 1, 2 * kChunk));  // right before the only place that is aligned to four
    memory_->leave_chunks(memory_->backed_chunks() + 1);
    put(get(3 * kChunk, 1, 4 * kChunk));
    put(first);
}

class Evictor : public PressureHandler {
   public:
    std::uint64_t make_room(std::uint64_t size_bytes) noexcept override {
        asked.push_back(size_bytes);
        if (asked.size() > 2) return 0;
        memory->leave_chunks(asked.size() * 2);
        return 2 * memory->options().chunk_bytes;
    }
    std::shared_ptr<RecordedMemory> memory;
    std::vector<std::uint64_t> asked;
};

TEST_F(HeapPressure, TheEngineIsAskedForRoomUntilItHasNone) {
    Evictor evictor;
    HeapOptions options;
    options.pressure = &evictor;
    make({}, options);
    evictor.memory = memory_;
    memory_->leave_chunks(0);
    put(get(4 * kChunk));
    EXPECT_EQ(evictor.asked, (std::vector<std::uint64_t>{4 * kChunk, 4 * kChunk}));
    EXPECT_FALSE(heap_->allocate(5 * kChunk, 1));
    EXPECT_EQ(evictor.asked.size(), 3U);
    end();
}

TEST_F(HeapPressure, WhicheverCallOfTheBackingIsRefusedNothingIsLost) {
    for (const BackingCall call : {BackingCall::back, BackingCall::map, BackingCall::mark,
                                   BackingCall::passed, BackingCall::wait, BackingCall::order}) {
        for (const Errc code : {Errc::io, Errc::no_space, Errc::out_of_memory}) {
            bool struck = true;
            for (unsigned nth = 1; struck && nth < 40; ++nth) {
                SCOPED_TRACE(std::to_string(static_cast<int>(call)) + " " + std::to_string(nth));
                make({kChunk, 64, 16, 64, 12});
                memory_->refuse(call, nth, code);
                live_a_little();
                struck = memory_->calls(call) >= nth;
                memory_->refuse(call, 0);
                finish(1);
                finish(2);
                ASSERT_TRUE(heap_->trim(true));
                EXPECT_EQ(heap_->statistics().mapped, 0U);
                EXPECT_EQ(heap_->statistics().live_blocks, 0U);
                put(get(12 * kChunk, 2));
                end();
            }
        }
    }
}

TEST_F(HeapPressure, MemoryThatTheBackingKeepsIsNotUsedAgainAndTheHeapGoesOn) {
    for (const BackingCall call : {BackingCall::unback, BackingCall::unmap}) {
        for (unsigned nth = 1; nth < 6; ++nth) {
            SCOPED_TRACE(std::to_string(static_cast<int>(call)) + " " + std::to_string(nth));
            make({kChunk, 64, 16, 64, 24});
            memory_->refuse(call, nth);
            live_a_little();
            for (int i = 0; i < 3; ++i) live_a_little();
            heap_->check();
            put(get(8 * kChunk, 1));
            put(get(40 * kKi, 1));
            put(get(600, 1));
            heap_.reset();
            EXPECT_EQ(memory_->misuse(), "");
        }
    }
}

TEST_F(HeapPressure, WhatTheBackingRefusesToTakeStaysUsableAndTheRestIsGiven) {
    for (unsigned nth = 1; nth < 4; ++nth) {
        make();
        std::array<void*, 3> runs{};
        std::array<void*, 3> between{};
        for (std::size_t i = 0; i < runs.size(); ++i) {
            runs[i] = get(kChunk);
            between[i] = get(kChunk);
        }
        for (void* const run : runs) put(run);
        memory_->refuse(BackingCall::unback, nth, Errc::busy);
        EXPECT_FALSE(heap_->trim());
        EXPECT_EQ(heap_->statistics().mapped, 4 * kChunk);
        EXPECT_EQ(heap_->statistics().free, kChunk);
        EXPECT_EQ(*heap_->trim(), kChunk) << "a trim asks again";
        for (void* const block : between) put(block);
        EXPECT_EQ(*heap_->trim(), 3 * kChunk);
        end();
    }
}

TEST_F(HeapPressure, ATrimWaitsForNoWindowToGiveWhatTheWindowDoesNotShow) {
    std::array<void*, 4> blocks{};
    for (void*& block : blocks) block = get(kChunk, 1);
    put(blocks[0]);
    put(blocks[2]);
    void* const window = get(2 * kChunk, 1);
    ASSERT_EQ(heap_->statistics().windows, 2 * kChunk);
    queue(1);
    put(window);
    put(get(8 * kChunk, 2));
    EXPECT_EQ(*heap_->trim(), 8 * kChunk);
    finish(1);
    EXPECT_EQ(*heap_->trim(), 2 * kChunk);
    put(blocks[1]);
    put(blocks[3]);
}

TEST_F(HeapPressure, ATrimKeepsTheChunksThatAWindowMayStillShow) {
    make({kChunk, 64, 16, 64, 4});
    std::array<void*, 4> blocks{};
    for (void*& block : blocks) block = get(kChunk, 1);
    put(blocks[0]);
    put(blocks[2]);
    void* const window = get(2 * kChunk, 1);
    queue(1);
    put(window);
    // Its pieces are another stream's, which waits for this one, and then everybody's.
    void* const borrowed = get(kChunk, 2);
    finish(1);
    put(borrowed);
    finish(2);
    memory_->refuse(BackingCall::passed, 1);  // so that the window is not known to be done
    ASSERT_TRUE(heap_->trim());
    EXPECT_EQ(memory_->misuse(), "");
    ASSERT_TRUE(heap_->trim(true));
    EXPECT_EQ(heap_->statistics().mapped, 2 * kChunk);
    EXPECT_EQ(heap_->statistics().windows, 0U);
}

TEST_F(HeapPressure, WhicheverAllocationOfItsOwnFailsNothingIsLost) {
    bool struck = true;
    for (std::uint64_t nth = 1; struck && nth < 2000; ++nth) {
        SCOPED_TRACE(nth);
        make({kChunk, 64, 16, 64, 12});
        struck = live_a_little_without(nth);
        end();
    }
}

TEST_F(HeapPressure, ABlockThatNoCacheHasRoomForGoesBackToTheHeap) {
    std::array<void*, 40> slots{};
    put(get(1 << 20));
    {
        const AllocationFault none(1, true);
        for (void*& slot : slots) slot = get(1024);
        for (void* const slot : slots) put(slot);
    }
    EXPECT_EQ(heap_->statistics().cached, 0U);
    ASSERT_TRUE(heap_->trim());
    EXPECT_EQ(heap_->statistics().mapped, 0U);
}

// Blocks, not slots: those are cached at once.
TEST_F(HeapPressure, CachingThatWasFollowedByGrowthWaitsTwiceAsLongForTheNext) {
    constexpr int kPatience = 1 << 14;
    const auto calls_until_cached = [&] {
        int calls = 0;
        while (heap_->statistics().cached == 0 && calls < 8 * kPatience) {
            put(get(40 * kKi));
            ++calls;
        }
        return calls;
    };
    // Enough is free, but in pieces.
    const auto grow = [&] {
        std::vector<void*> blocks(3, nullptr);
        for (void*& block : blocks) block = get(kChunk);
        while (heap_->statistics().free + heap_->statistics().cached >= kChunk) {
            blocks.push_back(get(kChunk));
        }
        for (std::size_t i = 0; i < blocks.size(); i += 2) put(blocks[i]);
        put(get(2 * kChunk));
        for (std::size_t i = 1; i < blocks.size(); i += 2) put(blocks[i]);
    };
    const int first = calls_until_cached();
    EXPECT_NEAR(first, kPatience, 2);
    grow();
    EXPECT_EQ(heap_->statistics().cached, 0U);
    EXPECT_NEAR(calls_until_cached(), 2 * kPatience, 2);
    grow();
    EXPECT_NEAR(calls_until_cached(), 4 * kPatience, 2);
}

TEST_F(HeapPressure, CachingStaysWhereMoreLivesThanEverDid) {
    void* const held = get(40 * kKi);  // its chunk is not given up for the growth
    while (heap_->statistics().cached == 0) put(get(40 * kKi));
    put(get(heap_->statistics().mapped + kChunk));
    put(get(40 * kKi));
    EXPECT_GT(heap_->statistics().cached, 0U);
    put(held);
}

TEST_F(HeapPressure, ABackingWhosePartsAreNoWholeChunksIsRefused) {
    for (const std::uint64_t chunk_bytes : {std::uint64_t{4096}, std::uint64_t{96} << 10}) {
        auto memory = std::make_shared<RecordedMemory>(RecordedMemory::Options{chunk_bytes});
        const auto made =
            Heap<RecordedDevice>::create(std::make_unique<RecordedDevice>(memory), HeapOptions{});
        ASSERT_FALSE(made);
        EXPECT_EQ(made.error().code(), Errc::invalid_argument);
    }
}

TEST_F(HeapPressure, PeaksAreKeptAndMetadataIsCounted) {
    void* const block = get(8 * kChunk);
    put(block);
    ASSERT_TRUE(heap_->trim());
    const HeapStatistics now = heap_->statistics();
    EXPECT_EQ(now.peak_mapped, 8 * kChunk);
    EXPECT_EQ(now.peak_live, 8 * kChunk);
    EXPECT_EQ(now.births, 1U);
    EXPECT_GT(now.metadata, 0U);
    EXPECT_EQ(now.reserved, memory_->addresses().size_bytes());
}

TEST_F(HeapPressure, ATensorOfAMiBCostsLessThanAThousandthInRecords) {
    make({std::uint64_t{2} << 20, 4096, 16, 64, 4096});
    std::vector<void*> blocks;
    const std::uint64_t before = heap_->statistics().metadata;
    for (int i = 0; i < 8192; ++i) blocks.push_back(get(std::uint64_t{1} << 20));
    EXPECT_LT(heap_->statistics().metadata - before, (std::uint64_t{8192} << 20) / 1000);
    for (void* const block : blocks) put(block);
}

}  // namespace
}  // namespace frostline
