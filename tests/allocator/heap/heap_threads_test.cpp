// Proves that threads may come and go in any way: blocks are freed elsewhere, in a thread's last
// moments, beside the heap's end, and a forked child is refused in words.
#include "tests/allocator/heap/heap_fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <barrier>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace frostline {
namespace {

class HeapThreads : public DeviceHeapFixture {};

TEST_F(HeapThreads, ABlockMayBeFreedOnAnyThread) {
    for (const std::uint64_t size : {700, 40 << 10, 700 << 10}) {
        void* const block = get(size);
        std::thread([&] { put(block); }).join();
        EXPECT_EQ(heap_->statistics().live, 0U);
        EXPECT_EQ(heap_->statistics().live_block, 0U);
        EXPECT_EQ(heap_->statistics().live_blocks, 0U);
    }
}

TEST_F(HeapThreads, WhatAnEndedThreadCachedServesOthers) {
    make({kChunk, 64, 16, 64, 1});
    std::thread([&] {
        std::vector<void*> slots;
        for (int i = 0; i < 200; ++i) slots.push_back(get(1024));
        for (void* const slot : slots) put(slot);
    }).join();
    EXPECT_GE(heap_->statistics().cached, 200U * 1024);
    put(get(kChunk));
}

TEST_F(HeapThreads, WhereSmallMemoryCannotGrowAnotherThreadsSlotsServe) {
    // Three chunks of small memory without a gap, a span of which lies in this thread's cache.
    std::vector<void*> blocks;
    for (std::uint64_t i = 0; i < 3 * kChunk / kSpanBytes - 1; ++i)
        blocks.push_back(get(kSpanBytes));
    put(get(700));
    ASSERT_EQ(heap_->statistics().mapped, 3 * kChunk);
    ASSERT_EQ(heap_->statistics().free, 0U);
    memory_->refuse(BackingCall::back, 1, Errc::io, true);
    std::thread([&] { put(get(700)); }).join();
    EXPECT_EQ(memory_->calls(BackingCall::back), 4U);
    for (void* const block : blocks) put(block);
}

TEST_F(HeapThreads, ThreadsThatComeAndGoShareTheirCaches) {
    std::uint64_t metadata = 0;
    for (int i = 0; i < 100; ++i) {
        std::thread([&] { put(get(700)); }).join();
        if (i == 0) metadata = heap_->statistics().metadata;
    }
    EXPECT_EQ(heap_->statistics().metadata, metadata);
    EXPECT_EQ(heap_->statistics().mapped, kChunk);
    EXPECT_EQ(heap_->statistics().cached, kSpanBytes);
}

// What another thread freed of the very kind is taken a few at a time, and what it keeps stays as
// it is: nothing is taken apart, and nothing grows.
TEST_F(HeapThreads, ABlockOfAKindThatAnotherThreadFreedIsTakenFromIt) {
    while (heap_->statistics().cached == 0) put(get(40 << 10));
    std::vector<void*> blocks(200);
    for (void*& block : blocks) block = get(40 << 10);
    while (heap_->statistics().free >= 40 << 10) blocks.push_back(get(40 << 10));
    for (void* const block : blocks) put(block);
    const HeapStatistics before = heap_->statistics();
    ASSERT_GE(before.cached, blocks.size() * (40 << 10));
    std::thread([&] {
        std::vector<void*> ours(blocks.size());
        ours[0] = get(40 << 10);
        EXPECT_EQ(heap_->statistics().free, before.free) << "caches were emptied for one block";
        for (std::size_t i = 1; i < ours.size(); ++i) ours[i] = get(40 << 10);
        EXPECT_EQ(heap_->statistics().mapped, before.mapped);
        EXPECT_EQ(heap_->statistics().free, before.free);
        for (void* const block : ours) put(block);
    }).join();
    EXPECT_EQ(heap_->statistics().cached, before.cached);
    heap_->check();
}

// Threads that need slots do not take turns at one span, as long as there is memory for both.
TEST_F(HeapThreads, AThreadTakesWholeSpansOfSlots) {
    std::barrier together(2);
    const auto spans_of = [&](std::set<std::uint64_t>& spans) {
        std::vector<void*> slots;
        for (int i = 0; i < 640; ++i) {
            slots.push_back(get(1024));
            spans.insert(reinterpret_cast<std::uint64_t>(slots.back()) / kSpanBytes);
            together.arrive_and_wait();
        }
        for (void* const slot : slots) put(slot);
    };
    std::set<std::uint64_t> ours;
    std::set<std::uint64_t> theirs;
    std::thread other([&] { spans_of(theirs); });
    spans_of(ours);
    other.join();
    EXPECT_EQ(ours.size(), 10U);
    EXPECT_EQ(theirs.size(), 10U);
    for (const std::uint64_t span : ours) EXPECT_FALSE(theirs.contains(span));
}

// Other threads keep their slots while small memory grows by no more than half for that.
TEST_F(HeapThreads, SlotsThatOthersKeepServeOnceTheyAreMany) {
    const std::size_t slots_of_a_chunk = kChunk / 1024;
    std::vector<void*> slots(8 * slots_of_a_chunk);
    for (void*& slot : slots) slot = get(1024);
    const std::uint64_t mapped = heap_->statistics().mapped;
    const auto need_another = [&](std::size_t freed) {
        for (std::size_t i = 0; i < freed; ++i) put(slots[i]);
        std::thread([&] { put(get(1024)); }).join();
        return heap_->statistics().mapped;
    };
    EXPECT_EQ(need_another(slots_of_a_chunk), mapped + kChunk);
    for (std::size_t i = 0; i < slots_of_a_chunk; ++i) slots[i] = get(1024);
    while (heap_->statistics().free >= kSpanBytes) slots.push_back(get(1024));
    const std::uint64_t grown = heap_->statistics().mapped;
    EXPECT_EQ(need_another(4 * slots_of_a_chunk), grown);
    for (std::size_t i = 4 * slots_of_a_chunk; i < slots.size(); ++i) put(slots[i]);
}

// No request fails while caches hold what would serve it, whatever the backing says.
TEST_F(HeapThreads, SlotsThatOthersKeepServeWhereTheHeapCannotGrow) {
    std::vector<void*> slots(8 * kChunk / 1024);
    for (void*& slot : slots) slot = get(1024);
    while (heap_->statistics().free >= kSpanBytes) slots.push_back(get(1024));
    put(slots.back());
    memory_->refuse(BackingCall::back, 1, Errc::io, true);
    std::thread([&] { slots.back() = get(1024); }).join();
    memory_->refuse(BackingCall::back, 0);
    for (void* const slot : slots) put(slot);
}

// Frees and allocates in a thread's last moments, when its cache is gone or about to go.
struct AtTheEnd {
    Heap<RecordedDevice>* heap = nullptr;
    void* block = nullptr;
    bool well = true;
    bool* report = nullptr;
    ~AtTheEnd() {
        if (heap == nullptr) return;
        well = heap->free(block).has_value();
        const auto made = heap->allocate(700, 7);
        well = well && made && heap->free(*made);
        const auto large = heap->allocate(700 << 10, 8);
        well = well && large && heap->record_stream(*large, 7) && heap->free(*large);
        *report = well;
    }
};
thread_local AtTheEnd early;  // touched before the cache is made, so destroyed after it
thread_local AtTheEnd late;

TEST_F(HeapThreads, DestructorsOfThreadLocalsMayUseTheHeap) {
    bool early_well = false;
    bool late_well = false;
    std::thread([&] {
        early.report = &early_well;
        void* const first = get(700);
        late.report = &late_well;
        early.heap = heap_.get();
        early.block = first;
        late.heap = heap_.get();
        late.block = get(40 << 10);
    }).join();
    EXPECT_TRUE(early_well);
    EXPECT_TRUE(late_well);
    EXPECT_EQ(heap_->statistics().live_blocks, 0U);
    EXPECT_EQ(heap_->statistics().live, 0U);
}

TEST_F(HeapThreads, AThreadMayOutliveTheHeap) {
    std::barrier meet(2);
    std::thread other([&] {
        put(get(700));
        meet.arrive_and_wait();
        meet.arrive_and_wait();  // the heap ends
    });
    meet.arrive_and_wait();
    end();
    heap_ = nullptr;
    meet.arrive_and_wait();
    other.join();
    make();
    put(get(700));  // the number of the ended heap is not this one's
    EXPECT_EQ(heap_->statistics().births, 1U);
}

TEST_F(HeapThreads, ManyHeapsShareAThread) {
    std::vector<std::shared_ptr<RecordedMemory>> memories;
    std::vector<std::unique_ptr<Heap<RecordedDevice>>> heaps;
    for (int i = 0; i < 9; ++i) {
        memories.push_back(std::make_shared<RecordedMemory>(RecordedMemory::Options{}));
        heaps.push_back(*Heap<RecordedDevice>::create(
            std::make_unique<RecordedDevice>(memories.back()), HeapOptions{}));
    }
    std::vector<void*> blocks;
    for (int round = 0; round < 3; ++round) {
        for (auto& heap : heaps) blocks.push_back(*heap->allocate(700, 1));
        for (std::size_t i = 0; i < heaps.size(); ++i) EXPECT_TRUE(heaps[i]->free(blocks[i]));
        blocks.clear();
    }
    for (std::size_t i = 0; i < heaps.size(); ++i) {
        EXPECT_EQ(heaps[i]->statistics().births, 3U);
        EXPECT_EQ(heaps[i]->statistics().cached, kSpanBytes);
        heaps[i].reset();
        EXPECT_EQ(memories[i]->misuse(), "");
        EXPECT_EQ(memories[i]->backed_chunks(), 0U);
    }
}

// ThreadSanitizer has nothing to say of a child, and a child of a program with threads little to
// do.
#if !defined(__SANITIZE_THREAD__)

template <class Check>
int in_a_child(Check&& check) {
    const pid_t child = fork();
    if (child == 0) _exit(check());
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool refused(const Result<void>& result) {
    return !result && result.error().code() == Errc::busy &&
           std::string(result.error().message()).find("forked child") != std::string::npos;
}

TEST_F(HeapThreads, AForkedChildIsRefusedInWordsAndTheParentGoesOn) {
    void* const block = get(700);
    put(get(700));
    const std::size_t backed = memory_->backed_chunks();
    EXPECT_EQ(in_a_child([&] {
                  const auto allocated = heap_->allocate(700, 1);
                  if (allocated || !refused(Result<void>(allocated.error()))) return 1;
                  if (!refused(heap_->free(block))) return 2;
                  if (!refused(heap_->free(block, 700))) return 3;
                  if (!refused(heap_->record_stream(block, 2))) return 4;
                  if (heap_->trim(true)) return 5;
                  if (!refused(heap_->forget_stream(1))) return 7;
                  heap_.reset();  // takes nothing from the parent
                  return memory_->backed_chunks() == backed ? 0 : 6;
              }),
              0);
    put(block);
    put(get(700));
}

TEST_F(HeapThreads, AChildMayMakeAHeapOfItsOwn) {
    put(get(700));
    EXPECT_EQ(in_a_child([&] {
                  auto memory = std::make_shared<RecordedMemory>(RecordedMemory::Options{});
                  auto heap = Heap<RecordedDevice>::create(std::make_unique<RecordedDevice>(memory),
                                                           HeapOptions{});
                  if (!heap) return 1;
                  const auto made = (*heap)->allocate(700, 1);
                  return made && (*heap)->free(*made) ? 0 : 2;
              }),
              0);
}

TEST_F(HeapThreads, AChildEndsThoughAnotherThreadWasInTheHeapWhenItWasMade) {
    const auto caches = std::make_shared<HeapCaches>();
    ASSERT_NE(caches->enter(), nullptr);
    int ended = -1;
    caches->for_each_locked([&](ThreadCache&) {
        // The lock of the list is held by a thread that the child does not have.
        const pid_t child = fork();
        if (child == 0) {
            alarm(10);
            std::exit(0);  // runs this thread's destructors
        }
        int status = -1;
        waitpid(child, &status, 0);
        ended = status;
    });
    EXPECT_TRUE(WIFEXITED(ended)) << "the child hangs at its end";
}

#if !defined(__SANITIZE_ADDRESS__)

// Everything that the C library has left, down to the smallest piece.
void take_all_memory() {
    struct Piece {
        Piece* next;
    };
    static thread_local Piece* volatile taken = nullptr;
    for (std::size_t size = std::size_t{1} << 20; size >= sizeof(Piece); size /= 2) {
        while (void* const piece = std::malloc(size)) taken = new (piece) Piece{taken};
    }
}

// 0, or which step went wrong. Without memory for a cache of its own, the thread does without.
int first_use_without_memory(std::uint64_t size_bytes) {
    auto heap = Heap<RecordedDevice>::create(
        std::make_unique<RecordedDevice>(
            std::make_shared<RecordedMemory>(RecordedMemory::Options{})),
        HeapOptions{});
    if (!heap) return 1;
    // Free memory, so that nothing is asked of what stands in for the device.
    const auto before = (*heap)->allocate(size_bytes, 1);
    if (!before || !(*heap)->free(*before)) return 2;
    int step = 3;
    std::thread([&] {
        const rlimit none{1 << 16, RLIM_INFINITY};
        if (::setrlimit(RLIMIT_DATA, &none) != 0) return;
        take_all_memory();
        const auto made = (*heap)->allocate(size_bytes, 1);
        step = !made ? 4 : !(*heap)->free(*made) ? 5 : 0;
    }).join();
    return step;
}

TEST_F(HeapThreads, AThreadsFirstUseDoesNotEndTheProgramForWantOfMemory) {
    for (const std::uint64_t size : {700, 40 << 10, 700 << 10}) {
        EXPECT_EQ(in_a_child([&] { return first_use_without_memory(size); }), 0) << size;
    }
}

#endif

#endif

}  // namespace
}  // namespace frostline
