// Proves what becomes of memory whose stream goes: one that was forgotten before is never asked
// again, and its memory is everybody's when its work is done; one that was destroyed without that
// keeps its memory until it is forgotten, and is named to whoever misses the memory.
#include "tests/allocator/heap/heap_fixture.h"
#include "tests/allocator/heap/heap_oracle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <thread>
#include <vector>

namespace frostline {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kSizes[] = {700, 40 << 10, 700 << 10};

class HeapForget : public DeviceHeapFixture {
   protected:
    void forget(StreamHandle stream) {
        const Result<void> forgotten = heap_->forget_stream(stream);
        EXPECT_TRUE(forgotten) << forgotten.error().message();
    }
    void destroy(StreamHandle stream) {
        const std::lock_guard lock(memory_->mutex);
        memory_->streams.destroy(stream);
    }
    void make_again(StreamHandle stream) {
        const std::lock_guard lock(memory_->mutex);
        memory_->streams.make_again(stream);
    }
};

TEST_F(HeapForget, WhatWasFreedOnItIsForAllWhenItsWorkIsDoneAndNobodyAsksForIt) {
    for (const std::uint64_t size : kSizes) {
        make();
        void* const block = get(size, 1);
        queue(1);
        put(block);
        forget(1);
        destroy(1);
        const unsigned questions = memory_->questions;
        EXPECT_EQ(*heap_->trim(), 0U);
        finish(1);
        EXPECT_GT(*heap_->trim(), 0U);
        EXPECT_EQ(heap_->statistics().mapped, 0U);
        end();
        EXPECT_EQ(memory_->questions, questions);
    }
}

TEST_F(HeapForget, ABlockThatOutlivesItsStreamIsForAllWhenItIsFreedAndTheWorkDone) {
    for (const std::uint64_t size : kSizes) {
        make();
        void* const early = get(size, 1);
        void* const late = get(size, 1);
        queue(1);
        forget(1);
        destroy(1);
        put(early);
        void* const other = get(size, 2);
        EXPECT_NE(other, early) << "the stream may still use it";
        finish(1);
        put(late);
        put(other);
        ASSERT_TRUE(heap_->trim());
        EXPECT_EQ(heap_->statistics().mapped, 0U);
    }
}

TEST_F(HeapForget, WhatItUsedBesidesWaitsForItsLastEvent) {
    void* const freed = get(700 << 10, 1);
    void* const living = get(700 << 10, 1);
    void* const captured = get(700 << 10, 1);
    for (void* const block : {freed, living, captured}) {
        ASSERT_TRUE(heap_->record_stream(block, 2));
    }
    queue(2);
    put(freed);
    capture(2, true);
    put(captured);
    capture(2, false);
    forget(2);
    destroy(2);
    put(living);
    ASSERT_TRUE(heap_->trim());
    EXPECT_EQ(heap_->statistics().pending, 3 * (700U << 10));
    finish(2);
    ASSERT_TRUE(heap_->trim());
    EXPECT_EQ(heap_->statistics().pending, 0U);
}

TEST_F(HeapForget, WhatIsFreedAfterItsWorkWaitsForNobody) {
    void* const block = get(700 << 10, 1);
    ASSERT_TRUE(heap_->record_stream(block, 2));
    forget(2);
    destroy(2);
    ASSERT_TRUE(heap_->trim());
    put(get(100, 3));  // has the other's place in the heap's books, if it likes
    put(block);
    ASSERT_TRUE(heap_->trim());
    EXPECT_EQ(heap_->statistics().mapped, 0U);
}

TEST_F(HeapForget, AWindowOfItIsClosedWhenItsWorkIsDone) {
    make({kChunk, 64, 16, 64, 4});
    void* const first = get(2 * kChunk, 1);
    void* const gap = get(kChunk, 1);
    put(first);
    void* const window = get(3 * kChunk, 1);
    ASSERT_EQ(memory_->window_chunks(), 3U);
    queue(1);
    forget(1);
    destroy(1);
    put(window);
    ASSERT_TRUE(heap_->trim());
    EXPECT_EQ(memory_->window_chunks(), 3U);
    finish(1);
    EXPECT_EQ(*heap_->trim(), 3 * kChunk);
    put(gap);
}

TEST_F(HeapForget, AStreamThatIsMadeWithItsHandleIsAnotherToTheHeap) {
    for (const std::uint64_t size : kSizes) {
        make();
        void* const block = get(size, 1);
        queue(1);
        put(block);
        forget(1);
        destroy(1);
        make_again(1);
        void* const other = get(size, 1);
        EXPECT_NE(other, block);
        put(other);
        EXPECT_EQ(get(size, 1), other);
    }
}

TEST_F(HeapForget, StreamsMayComeAndGoForEver) {
    for (StreamHandle stream = 1; stream < 70'000; ++stream) {
        void* const block = get(40 << 10, stream);
        queue(stream);
        put(block);
        forget(stream);
        destroy(stream);
        finish(stream);
    }
    EXPECT_LE(heap_->statistics().mapped, 2 * kChunk);
}

TEST_F(HeapForget, StreamsOfManyThreadsComeAndGoBesideOneThatStays) {
    constexpr StreamHandle kThreads = 3;
    constexpr StreamHandle kRounds = 30;
    make({kChunk, 64, 16, 64, 32});
    HeapOracle oracle(memory_, true);
    const auto use = [&](StreamHandle stream, StreamHandle besides) {
        for (const std::uint64_t size : kSizes) {
            void* const block = get(size, stream);
            oracle.birth(number(block), size, stream, 512);
            ASSERT_TRUE(heap_->record_stream(block, besides));
            oracle.use(number(block), besides);
            oracle.death(number(block));
            put(block);
        }
    };
    constexpr StreamHandle kStays = 1;
    std::vector<std::thread> threads;
    for (StreamHandle thread = 1; thread <= kThreads; ++thread) {
        threads.emplace_back([&, thread] {
            for (StreamHandle round = 0; round < kRounds; ++round) {
                const StreamHandle stream = (thread << 32) + round;
                use(stream, kStays);
                forget(stream);
                destroy(stream);
            }
        });
    }
    for (StreamHandle round = 0; round < kRounds; ++round) {
        use(kStays, (round % 2 + 8) << 32);
    }
    for (std::thread& each : threads) each.join();
    ASSERT_TRUE(heap_->trim(true));
    EXPECT_EQ(heap_->statistics().mapped, 0U);
    heap_->check();
    end();
}

TEST_F(HeapForget, ToForgetAStreamThatTheHeapDoesNotKnowIsNothing) {
    destroy(7);
    forget(7);
    put(get(700, 1));
    forget(1);
    forget(1);
    EXPECT_EQ(memory_->calls(BackingCall::wait_for_all), 0U);
}

TEST_F(HeapForget, ACapturedStreamIsNotForgotten) {
    put(get(700, 1));
    capture(1, true);
    const auto refused = heap_->forget_stream(1);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), Errc::busy);
    EXPECT_THAT(words(refused), HasSubstr("stream 0x1 is being captured"));
    capture(1, false);
    forget(1);
}

TEST_F(HeapForget, AStreamWhoseEventIsRefusedIsForgottenTheNextTime) {
    void* const block = get(700 << 10, 1);
    queue(1);
    memory_->refuse(BackingCall::mark, 1);
    EXPECT_FALSE(heap_->forget_stream(1));
    put(block);
    void* const again = get(700 << 10, 1);
    EXPECT_EQ(again, block) << "the heap still knows it";
    put(again);
    forget(1);
    destroy(1);
}

TEST_F(HeapForget, WhoMissesTheMemoryOfADestroyedStreamIsToldWhichAndWhatToDo) {
    make({kChunk, 64, 16, 64, 4});
    void* const block = get(4 * kChunk, 1);
    queue(1);
    put(block);
    destroy(1);
    const auto refused = heap_->allocate(4 * kChunk, 2);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), Errc::no_space);
    EXPECT_THAT(refused.error().message(), HasSubstr("stream 0x1 was destroyed"));
    EXPECT_THAT(refused.error().message(), HasSubstr("call forget_stream()"));
    EXPECT_EQ(memory_->calls(BackingCall::wait_for_all), 0U) << "it could spoil a capture";
    forget(1);
    EXPECT_EQ(memory_->calls(BackingCall::wait_for_all), 1U);
    put(get(4 * kChunk, 2));
}

TEST_F(HeapForget, WhatATrimLeavesToADestroyedStreamIsCountedUntilItIsForgotten) {
    put(get(700 << 10, 2));
    put(get(700 << 10, 1));
    queue(1);
    destroy(1);
    ASSERT_TRUE(heap_->trim());
    const HeapStatistics left = heap_->statistics();
    EXPECT_GE(left.lost, 700U << 10);
    EXPECT_LE(left.lost, left.free);
    forget(1);
    EXPECT_EQ(heap_->statistics().lost, 0U);
    ASSERT_TRUE(heap_->trim());
    EXPECT_EQ(heap_->statistics().mapped, 0U);
}

TEST_F(HeapForget, ADestroyedStreamThatTheHeapDidNotMeetYetIsForgottenLikeOneThatItDid) {
    void* const freed = get(700 << 10, 1);
    void* const living = get(700 << 10, 1);
    void* const used = get(700 << 10, 2);
    ASSERT_TRUE(heap_->record_stream(used, 1));
    queue(1);
    put(freed);
    destroy(1);
    put(used);
    EXPECT_GT(heap_->statistics().pending, 0U);
    forget(1);
    put(living);
    ASSERT_TRUE(heap_->trim());
    EXPECT_EQ(heap_->statistics().mapped, 0U);
}

TEST_F(HeapForget, AStreamWithADestroyedOnesHandleDoesNotGetItsMemory) {
    void* const block = get(700 << 10, 1);
    queue(1);
    put(block);
    destroy(1);
    ASSERT_TRUE(heap_->trim());  // meets it
    make_again(1);
    void* const other = get(700 << 10, 1);
    EXPECT_NE(other, block);
    put(other);
    forget(1);  // both
    ASSERT_TRUE(heap_->trim());
    EXPECT_EQ(heap_->statistics().mapped, 0U);
}

TEST_F(HeapForget, TheDeviceIsNotWaitedForDuringACaptureNorWhenItRefuses) {
    put(get(700 << 10, 2));
    put(get(700 << 10, 1));
    queue(1);
    destroy(1);
    capture(2, true);
    EXPECT_THAT(words(heap_->forget_stream(1)), HasSubstr("end the capture first"));
    EXPECT_EQ(memory_->calls(BackingCall::wait_for_all), 0U);
    capture(2, false);
    memory_->refuse(BackingCall::wait_for_all, 1);
    EXPECT_FALSE(heap_->forget_stream(1));
    forget(1);
    ASSERT_TRUE(heap_->trim());
    EXPECT_EQ(heap_->statistics().mapped, 0U);
}

TEST_F(HeapForget, TheEndWaitsForTheWorkOfStreamsThatAreGone) {
    for (const bool in_time : {true, false}) {
        make();
        void* const block = get(700 << 10, 1);
        queue(1);
        put(block);
        if (in_time) forget(1);
        destroy(1);
        bool done = true;
        memory_->on_unback = [&](std::uint64_t) { done = done && memory_->streams.done({{1, 1}}); };
        end();
        EXPECT_TRUE(done);
    }
}

// Where a stream takes no event, or an event cannot be waited for, all of the device's work is.
TEST_F(HeapForget, TheEndWaitsForTheWorkOfStreamsThatTheDriverIsInTroubleWith) {
    for (const BackingCall call : {BackingCall::mark, BackingCall::wait}) {
        make();
        void* const block = get(700 << 10, 1);
        queue(1);
        put(block);
        memory_->refuse(call, 1, Errc::io, true);
        bool done = true;
        memory_->on_unback = [&](std::uint64_t) { done = done && memory_->streams.done({{1, 1}}); };
        end();
        EXPECT_TRUE(done);
    }
}

}  // namespace
}  // namespace frostline
