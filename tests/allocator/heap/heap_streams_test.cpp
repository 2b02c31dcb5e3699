// Proves the rule of streams: the same stream at once, another only after an event behind all uses,
// whether or not it was recorded, and the device is made to wait before anybody is refused.
#include "tests/allocator/heap/heap_fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

namespace frostline {
namespace {

constexpr std::uint64_t kSizes[] = {700, 40 << 10, 700 << 10};

class HeapStreams : public DeviceHeapFixture {};

TEST_F(HeapStreams, TheSameStreamUsesFreedMemoryAgainAtOnce) {
    for (const std::uint64_t size : kSizes) {
        void* const block = get(size, 1);
        queue(1);
        put(block);
        void* const again = get(size, 1);
        EXPECT_EQ(again, block);
        put(again);
    }
    EXPECT_EQ(memory_->calls(BackingCall::wait), 0U);
}

TEST_F(HeapStreams, AnotherStreamGetsOtherMemoryUntilTheEventHasPassed) {
    for (const std::uint64_t size : kSizes) {
        void* const block = get(size, 1);
        queue(1);
        put(block);
        void* const other = get(size, 2);
        EXPECT_NE(other, block);
        finish(1);
        ASSERT_TRUE(heap_->trim());
        put(other);
    }
    EXPECT_EQ(memory_->calls(BackingCall::wait), 0U);
    EXPECT_EQ(memory_->calls(BackingCall::order), 0U);
}

TEST_F(HeapStreams, MemoryThatIsFreeForAllIsUsedBeforeTheHeapGrows) {
    for (const std::uint64_t size : {std::uint64_t{40 << 10}, std::uint64_t{700 << 10}}) {
        put(get(size, 1));  // nothing is queued: any event passes at once
        const std::uint64_t mapped = heap_->statistics().mapped;
        put(get(size, 2));
        EXPECT_EQ(heap_->statistics().mapped, mapped);
    }
}

TEST_F(HeapStreams, WhenTheBudgetIsUsedUpTheDeviceWaitsAndNotTheProgram) {
    make({kChunk, 64, 16, 64, 4});
    void* const block = get(4 * kChunk, 1);
    queue(1);
    put(block);
    put(get(4 * kChunk, 2));
    EXPECT_GT(memory_->calls(BackingCall::order), 0U);
    EXPECT_EQ(memory_->calls(BackingCall::wait), 0U);
}

TEST_F(HeapStreams, SmallMemoryOfABusyStreamIsGivenUpForALargeRequest) {
    make({kChunk, 64, 16, 64, 4});
    std::vector<void*> blocks;
    for (int i = 0; i < 8; ++i) blocks.push_back(get(100 * kKi, 1));
    queue(1);
    for (void* const block : blocks) put(block);
    put(get(4 * kChunk, 1));
    put(get(100 * kKi, 1));
}

TEST_F(HeapStreams, ARecordedStreamHoldsTheMemoryUntilItsEventHasPassed) {
    for (const std::uint64_t size : kSizes) {
        void* const block = get(size, 1);
        ASSERT_TRUE(heap_->record_stream(block, 2));
        queue(2);
        put(block);
        EXPECT_GE(heap_->statistics().pending, size);
        EXPECT_EQ(heap_->statistics().live, 0U);
        void* const other = get(size, 1);  // not even the block's own stream
        EXPECT_NE(other, block);
        // What is queued after the free does not hold it back.
        const std::uint64_t then = [&] {
            const std::lock_guard lock(memory_->mutex);
            return memory_->streams.queued(2);
        }();
        queue(2);
        {
            const std::lock_guard lock(memory_->mutex);
            memory_->streams.reach(2, then);
        }
        ASSERT_TRUE(heap_->trim());
        EXPECT_EQ(heap_->statistics().pending, 0U);
        put(other);
    }
}

TEST_F(HeapStreams, RecordingItsOwnStreamOrTheSameTwiceChangesNothing) {
    void* const block = get(40 << 10, 1);
    ASSERT_TRUE(heap_->record_stream(block, 1));
    put(block);
    EXPECT_EQ(heap_->statistics().pending, 0U);
    void* const second = get(40 << 10, 1);
    ASSERT_TRUE(heap_->record_stream(second, 2));
    ASSERT_TRUE(heap_->record_stream(second, 2));
    const unsigned before = memory_->calls(BackingCall::mark);
    put(second);
    EXPECT_EQ(memory_->calls(BackingCall::mark), before + 1);
}

TEST_F(HeapStreams, AStreamsRecordIsForgottenWithTheBlock) {
    void* const block = get(700, 1);
    ASSERT_TRUE(heap_->record_stream(block, 2));
    put(block);
    ASSERT_TRUE(heap_->trim());
    void* const again = get(700, 1);
    queue(2);
    put(again);
    EXPECT_EQ(heap_->statistics().pending, 0U);
}

TEST_F(HeapStreams, EveryRecordedStreamMustBeDone) {
    void* const block = get(700 << 10, 1);
    for (const StreamHandle stream : {2, 3, 4}) {
        ASSERT_TRUE(heap_->record_stream(block, stream));
        queue(stream);
    }
    put(block);
    for (const StreamHandle stream : {3, 4, 2}) {
        EXPECT_GT(heap_->statistics().pending, 0U);
        finish(stream);
        ASSERT_TRUE(heap_->trim());
    }
    EXPECT_EQ(heap_->statistics().pending, 0U);
}

TEST_F(HeapStreams, WhatACapturedStreamUsedWaitsForTheCapturesEnd) {
    void* const block = get(700 << 10, 1);
    ASSERT_TRUE(heap_->record_stream(block, 2));
    queue(2);
    capture(2, true);
    const unsigned before = memory_->calls(BackingCall::mark);
    put(block);
    EXPECT_EQ(memory_->calls(BackingCall::mark), before);
    finish(2);
    ASSERT_TRUE(heap_->trim());
    EXPECT_GT(heap_->statistics().pending, 0U);
    capture(2, false);
    ASSERT_TRUE(heap_->trim());
    EXPECT_EQ(heap_->statistics().pending, 0U);
}

TEST_F(HeapStreams, ACapturedStreamKeepsItsMemoryAndTheErrorSaysSo) {
    make({kChunk, 64, 16, 64, 4});
    void* const block = get(4 * kChunk, 1);
    queue(1);
    capture(1, true);
    put(block);
    const auto refused = heap_->allocate(4 * kChunk, 2);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), Errc::no_space);
    EXPECT_THAT(refused.error().message(),
                testing::HasSubstr("1.00 belong to streams that take no event"));
    EXPECT_EQ(get(4 * kChunk, 1), block);  // its own stream still may
    capture(1, false);
}

TEST_F(HeapStreams, AWindowsAddressesStayMappedWhileItsStreamUsesThem) {
    make({kChunk, 64, 16, 64, 4});
    void* const first = get(2 * kChunk, 1);
    void* const gap = get(kChunk, 1);
    put(first);
    void* const window = get(3 * kChunk, 1);
    ASSERT_GE(number(window), memory_->addresses().windows());
    EXPECT_EQ(memory_->window_chunks(), 3U);
    EXPECT_EQ(heap_->statistics().windows, 3 * kChunk);
    queue(1);
    put(window);
    ASSERT_TRUE(heap_->trim());
    EXPECT_EQ(memory_->window_chunks(), 3U);
    EXPECT_EQ(memory_->backed_chunks(), 4U);  // a window shows three of them
    finish(1);
    EXPECT_EQ(*heap_->trim(), 3 * kChunk);
    EXPECT_EQ(memory_->window_chunks(), 0U);
    EXPECT_EQ(memory_->backed_chunks(), 1U);
    put(gap);
}

TEST_F(HeapStreams, MemoryThatAWindowStillShowsIsNotTakenAway) {
    make({kChunk, 64, 16, 64, 4});
    void* const first = get(2 * kChunk, 1);
    void* const gap = get(kChunk, 1);
    put(first);
    void* const window = get(3 * kChunk, 1);
    queue(1);
    put(window);
    put(get(3 * kChunk, 2));  // the same memory, after the first stream
    finish(1);
    // The second stream is known to be done, and the first is not, whose window shows the memory.
    memory_->refuse(BackingCall::passed, 1);
    put(get(100 * kKi, 2));
    EXPECT_EQ(memory_->misuse(), "");
    put(gap);
}

TEST_F(HeapStreams, ATrimThatWaitsWaitsForTheBlocksOwnStreamToo) {
    void* const block = get(700 << 10, 1);
    ASSERT_TRUE(heap_->record_stream(block, 2));
    queue(1);
    queue(2);
    put(block);
    EXPECT_EQ(*heap_->trim(), 0U);
    EXPECT_EQ(*heap_->trim(true), 3 * kChunk);
}

TEST_F(HeapStreams, TheEndWaitsForWhatIsStillQueued) {
    void* const block = get(700 << 10, 1);
    void* const elsewhere = get(700 << 10, 1);
    ASSERT_TRUE(heap_->record_stream(elsewhere, 2));
    queue(1);
    queue(2);
    put(block);
    put(elsewhere);
    bool done = true;
    memory_->on_unback = [&](std::uint64_t) {
        done = done && memory_->streams.done({{1, 1}, {2, 1}});
    };
    end();
    EXPECT_TRUE(done);
}

}  // namespace
}  // namespace frostline
