// Proves the small parts of a heap by themselves: records, sizes, slots, caches, the clock, the
// guard against forked children, and how far streams have come.
#include "allocator/heap/fork_guard.h"
#include "allocator/heap/heap_clock.h"
#include "allocator/heap/slot_spans.h"
#include "allocator/heap/stream_ledger.h"
#include "allocator/heap/thread_cache.h"
#include "tests/allocator/heap/recorded_backing.h"
#include "tests/tiers/seed.h"

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace frostline {
namespace {

TEST(RecordArena, RecordsDoNotOverlapStartAsZerosAndAreNamedByNumbers) {
    const auto arena = *RecordArena::create();
    auto random = random_stream(503);
    std::map<std::byte*, std::size_t> taken;
    std::set<std::byte*> known;
    for (int i = 0; i < 20000; ++i) {
        if (taken.size() > 300) {
            const auto victim = std::next(
                taken.begin(), static_cast<std::ptrdiff_t>(between(random, 0, taken.size() - 1)));
            arena->give(victim->first, victim->second);
            taken.erase(victim);
        }
        const std::size_t size = between(random, 1, RecordArena::kLargestRecord);
        auto* const record = static_cast<std::byte*>(arena->take(size));
        ASSERT_NE(record, nullptr);
        ASSERT_EQ(reinterpret_cast<std::uintptr_t>(record) % RecordArena::kRecordBytes, 0U);
        if (known.insert(record).second) {
            ASSERT_TRUE(std::all_of(record, record + size,
                                    [](std::byte byte) { return byte == std::byte{0}; }));
        }
        std::memset(record, 0xAB, size);
        const auto next = taken.upper_bound(record);
        ASSERT_TRUE(next == taken.end() || record + size <= next->first);
        ASSERT_TRUE(next == taken.begin() ||
                    std::prev(next)->first + std::prev(next)->second <= record);
        taken[record] = size;
        ASSERT_EQ(arena->at(arena->number_of(record)), record);
        ASSERT_EQ(arena->at(arena->number_of(record + 8)), record + 8);
    }
    const std::size_t touched = arena->touched_bytes();
    for (const auto& [record, size] : taken) arena->give(record, size);
    for (int i = 0; i < 100; ++i) arena->give(arena->take(2000), 2000);
    EXPECT_LE(arena->touched_bytes(), touched + 2048);
}

TEST(SizeClasses, EachIsTheSmallestThatHoldsItsSizesAndFillsASpan) {
    for (std::uint64_t size = 1; size <= kLargestSlot; ++size) {
        const std::size_t at = class_of(size);
        ASSERT_GE(class_bytes(at), size);
        ASSERT_TRUE(at == 0 || class_bytes(at - 1) < size);
    }
    for (std::size_t i = 0; i < kSizeClasses; ++i) {
        EXPECT_EQ(class_bytes(i) % kSlotUnitBytes, 0U);
        EXPECT_LE(class_bytes(i) * kSlotsOfClass[i], kSpanBytes);
        EXPECT_LT(kSpanBytes - class_bytes(i) * kSlotsOfClass[i], kSpanBytes / 12);
        EXPECT_EQ(class_of(class_bytes(i)), i);
    }
}

TEST(SlotSpans, EverySlotIsFoundByItsStartAndByNothingElse) {
    const auto records = *RecordArena::create();
    constexpr std::uint64_t kStart = 1 << 24;
    const auto spans = *SlotSpans::create({kStart, 16 * kSpanBytes, records.get()});
    ASSERT_TRUE(spans->admit(2));
    for (std::size_t size_class = 0; size_class < kSizeClasses; ++size_class) {
        HeapBlock block;
        block.address = kStart + 3 * kSpanBytes;
        block.size_bytes = kSpanBytes;
        EXPECT_EQ(spans->take(size_class, 2).record, nullptr);
        ASSERT_TRUE(spans->add(block, size_class, 2));
        EXPECT_EQ(spans->take(size_class, 1).record, nullptr);
        std::map<std::uint64_t, AllocationRecord*> slots;
        const std::uint64_t size = class_bytes(size_class);
        for (std::uint64_t i = 0; i < kSlotsOfClass[size_class]; ++i) {
            EXPECT_EQ(spans->free_bytes(), (kSlotsOfClass[size_class] - i) * size);
            const HeapSlot slot = spans->take(size_class, 2);
            ASSERT_NE(slot.record, nullptr);
            EXPECT_EQ(slot.address, block.address + i * size);  // the lowest first
            slots[slot.address] = slot.record;
        }
        EXPECT_EQ(spans->take(size_class, 2).record, nullptr);
        HeapSpan* const span = spans->span_at(block.address);
        ASSERT_NE(span, nullptr);
        EXPECT_EQ(spans->span_at(block.address - 1), nullptr);
        EXPECT_EQ(spans->span_at(block.address + kSpanBytes), nullptr);
        EXPECT_EQ(spans->span_at(kStart - 1), nullptr);
        EXPECT_EQ(spans->span_at(kStart + 16 * kSpanBytes), nullptr);
        for (std::uint64_t at = block.address; at < block.address + kSpanBytes; ++at) {
            const auto slot = span->slot_at(at);
            const auto known = slots.find(at);
            ASSERT_EQ(slot.has_value(), known != slots.end()) << at - block.address;
            ASSERT_TRUE(!slot || &span->record(*slot) == known->second);
        }
        std::size_t seen = 0;
        SlotSpans::for_each_slot(*span, [&](std::uint64_t at, const AllocationRecord& record) {
            EXPECT_EQ(slots.at(at), &record);
            ++seen;
        });
        EXPECT_EQ(seen, slots.size());
        for (const auto& [at, record] : slots) {
            EXPECT_EQ(spans->span_at(at), span);
            HeapBlock* const empty = spans->give(*span, *span->slot_at(at));
            EXPECT_EQ(empty, at == slots.rbegin()->first ? &block : nullptr);
        }
        EXPECT_EQ(spans->span_at(block.address), nullptr);
        EXPECT_EQ(spans->free_bytes(), 0U);
    }
}

TEST(SlotSpans, TheLowestSpanServesFirst) {
    const auto records = *RecordArena::create();
    const auto spans = *SlotSpans::create({1 << 24, 16 * kSpanBytes, records.get()});
    HeapBlock high;
    high.address = (1 << 24) + 5 * kSpanBytes;
    HeapBlock low;
    low.address = (1 << 24) + 2 * kSpanBytes;
    ASSERT_TRUE(spans->add(high, 3, kNoStream));
    EXPECT_EQ(spans->take(3, kNoStream).address, high.address);
    ASSERT_TRUE(spans->add(low, 3, kNoStream));
    EXPECT_EQ(spans->take(3, kNoStream).address, low.address);
    EXPECT_EQ(spans->take(3, kNoStream).address, low.address + class_bytes(3));
}

TEST(ThreadCache, GivesBackWhatItTookByItsKindTheLatestFirst) {
    ThreadCache cache;
    AllocationRecord record{};
    const CacheKey one(1024, 1);
    EXPECT_EQ(cache.pop(one).record, nullptr);
    for (std::uint64_t i = 0; i < 100; ++i) ASSERT_TRUE(cache.push(one, {i, &record}));
    EXPECT_EQ(cache.counts.cached_bytes, 100 * 1024U);
    // Other kinds get nothing of it, those that share its bin least of all.
    std::size_t refused = 0;
    for (std::uint64_t size = 512; size < 512 * 1000; size += 512) {
        for (StreamTag tag = 0; tag < 3; ++tag) {
            const CacheKey other(size, tag);
            if (other == one) continue;
            EXPECT_EQ(cache.pop(other).record, nullptr);
            if (other.bin(ThreadCache::kBins) != one.bin(ThreadCache::kBins)) continue;
            EXPECT_FALSE(cache.push(other, {1, &record}));
            ++refused;
        }
    }
    EXPECT_GT(refused, 0U);
    for (std::uint64_t i = 100; i-- > 50;) EXPECT_EQ(cache.pop(one).address, i);
    EXPECT_EQ(cache.take_bin(one).size(), 50U);
    EXPECT_EQ(cache.counts.cached_bytes, 0U);
    ASSERT_TRUE(cache.push(one, {7, &record}));
    ASSERT_TRUE(cache.push(CacheKey(4096, 2), {8, &record}));
    EXPECT_EQ(cache.take_next().size() + cache.take_next().size(), 2U);
    EXPECT_TRUE(cache.take_next().empty());
    EXPECT_EQ(cache.counts.cached_bytes, 0U);
}

TEST(HeapClock, KeepsTheNumberAndTheMoment) {
    const HeapClock clock;
    for (const std::uint64_t number : {std::uint64_t{1}, HeapClock::kNumberMask}) {
        EXPECT_EQ(HeapClock::number_in(clock.stamp(number)), number);
    }
    EXPECT_EQ(HeapClock::number_in(clock.stamp(HeapClock::kNumberMask + 2)), 1U);
    EXPECT_GE(clock.age_s(clock.stamp(1)), 0);
    EXPECT_LE(clock.age_s(clock.stamp(1)), 60);
    // A stamp from after now is no age.
    EXPECT_EQ(clock.age_s(UINT64_MAX), 0);
}

#if !defined(__SANITIZE_THREAD__)
TEST(ForkGuard, TellsAChildAndItsChildFromTheMaker) {
    const auto guard = *ForkGuard::create();
    EXPECT_FALSE(guard->in_child());
    const pid_t child = fork();
    if (child == 0) {
        if (!guard->in_child()) _exit(1);
        const pid_t grandchild = fork();
        if (grandchild == 0) _exit(guard->in_child() ? 0 : 2);
        int status = -1;
        waitpid(grandchild, &status, 0);
        const auto own = ForkGuard::create();
        _exit(WIFEXITED(status) && own && !(*own)->in_child() ? WEXITSTATUS(status) : 3);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
    EXPECT_FALSE(guard->in_child());
}
#endif

class Ledger : public testing::Test {
   protected:
    std::shared_ptr<RecordedMemory> memory_ =
        std::make_shared<RecordedMemory>(RecordedMemory::Options{});
    RecordedDevice backing_{memory_};
    StreamLedger<RecordedDevice> ledger_{backing_};
};

TEST_F(Ledger, EachHandleHasOneTagFromOne) {
    EXPECT_EQ(*ledger_.tag_of(70), 1);
    EXPECT_EQ(*ledger_.tag_of(0), 2);  // the default stream is one like any other
    EXPECT_EQ(*ledger_.tag_of(70), 1);
    EXPECT_EQ(ledger_.count(), 2U);
    EXPECT_EQ(ledger_.epoch(kNoStream), 0U);
    EXPECT_EQ(ledger_.settled(kNoStream), 0U);
}

TEST_F(Ledger, AnEpochIsSettledWhenItsEventHasPassedAndNotBefore) {
    const StreamTag tag = *ledger_.tag_of(70);
    for (std::uint64_t epoch = 1; epoch <= 3; ++epoch) {
        EXPECT_EQ(ledger_.epoch(tag), epoch);
        memory_->streams.queue(70);
        ASSERT_TRUE(ledger_.mark(tag));
    }
    ASSERT_TRUE(ledger_.poll(tag));
    EXPECT_EQ(ledger_.settled(tag), 0U);
    memory_->streams.reach(70, 2);
    ASSERT_TRUE(ledger_.poll(tag));
    EXPECT_EQ(ledger_.settled(tag), 2U);
    ASSERT_NE(ledger_.last_mark(tag), nullptr);
    ASSERT_TRUE(backing_.wait(*ledger_.last_mark(tag)));
    ASSERT_TRUE(ledger_.poll(tag));
    EXPECT_EQ(ledger_.settled(tag), 3U);
    EXPECT_EQ(ledger_.last_mark(tag), nullptr);
}

TEST_F(Ledger, ACapturedStreamTakesNoEventAndItsEpochGoesOn) {
    const StreamTag tag = *ledger_.tag_of(70);
    memory_->streams.capture(70, true);
    const auto marked = ledger_.mark(tag);
    ASSERT_FALSE(marked);
    EXPECT_EQ(marked.error().code(), Errc::busy);
    EXPECT_EQ(ledger_.epoch(tag), 1U);
    EXPECT_FALSE(ledger_.may_mark(tag));
}

TEST_F(Ledger, ARefusedEventEndsNoEpoch) {
    const StreamTag tag = *ledger_.tag_of(70);
    memory_->refuse(BackingCall::mark, 1);
    EXPECT_FALSE(ledger_.mark(tag));
    EXPECT_EQ(ledger_.epoch(tag), 1U);
    memory_->streams.queue(70);
    ASSERT_TRUE(ledger_.mark(tag));
    memory_->refuse(BackingCall::passed, 1);
    EXPECT_FALSE(ledger_.poll(tag));
    EXPECT_EQ(ledger_.settled(tag), 0U);
}

TEST_F(Ledger, OneStreamWaitsForThatEpochOfAnotherAndNoLaterOne) {
    const StreamTag earlier = *ledger_.tag_of(70);
    const StreamTag later = *ledger_.tag_of(71);
    for (int i = 0; i < 3; ++i) {
        memory_->streams.queue(70);
        ASSERT_TRUE(ledger_.mark(earlier));
    }
    ASSERT_TRUE(ledger_.order(later, earlier, 2));
    EXPECT_TRUE(memory_->streams.precede({{70, 2}}, 71));
    EXPECT_FALSE(memory_->streams.precede({{70, 3}}, 71));
    // A settled epoch needs no order.
    memory_->streams.finish(70);
    ASSERT_TRUE(ledger_.poll(earlier));
    const unsigned before = memory_->calls(BackingCall::order);
    ASSERT_TRUE(ledger_.order(later, earlier, 3));
    EXPECT_EQ(memory_->calls(BackingCall::order), before);
}

TEST_F(Ledger, WhatItKnowsSurvivesRunningOutOfMemory) {
    constexpr StreamHandle kStreams = 40;
    for (StreamHandle stream = 1; stream <= kStreams; ++stream) {
        Result<StreamTag> tag = Error(Errc::out_of_memory, 0, "not asked yet");
        for (std::uint64_t nth = 1; !tag; ++nth) {
            const AllocationFault fault(nth);
            tag = ledger_.tag_of(stream);
        }
        memory_->streams.queue(stream);
        ASSERT_TRUE(ledger_.mark(*tag));
    }
    const StreamTag later = *ledger_.tag_of(1000);
    for (StreamHandle stream = 1; stream <= kStreams; ++stream) {
        const StreamTag tag = *ledger_.tag_of(stream);
        ASSERT_TRUE(ledger_.order(later, tag, 1));
        EXPECT_TRUE(memory_->streams.precede({{stream, 1}}, 1000)) << stream;
    }
}

}  // namespace
}  // namespace frostline
