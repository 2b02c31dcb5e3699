// Proves how a heap ends: by its owner, or, where blocks outlive that, by the last of them, on
// whatever thread and beside whatever calls; then its memory and its addresses are gone, and late
// calls are refused.
#include "frostline/allocator.h"
#include "frostline/host_memory.h"
#include "frostline/tensor_buffer.h"

#include <gtest/gtest.h>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <barrier>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace frostline {
namespace {

constexpr std::size_t kMi = std::size_t{1} << 20;

using Bytes = std::vector<char, allocator<char>>;

HostMemory open() {
    auto memory = HostMemory::open({.name = "ending", .capacity_bytes = 64 * kMi});
    if (!memory) {
        ADD_FAILURE() << memory.failure().message();
        std::abort();
    }
    return *std::move(memory);
}

frostline_status ask(frostline_heap* heap) {
    frostline_heap_stats figures{};
    figures.struct_size = sizeof(figures);
    return frostline_heap_get_stats(heap, &figures);
}

// Whether the process has anything at the address, accessible or not.
bool is_mapped(const void* address) {
    const auto page = reinterpret_cast<std::uintptr_t>(address) / 4096 * 4096;
    return ::msync(reinterpret_cast<void*>(page), 4096, MS_ASYNC) == 0 || errno != ENOMEM;
}

TEST(HeapEnd, WithoutBlocksItGoesWithItsOwner) {
    frostline_heap* heap = nullptr;
    void* block = nullptr;
    {
        HostMemory memory = open();
        heap = memory.get();
        block = *memory.allocate(kMi);
        EXPECT_TRUE(memory.free(block));
        EXPECT_TRUE(is_mapped(block));
    }
    EXPECT_EQ(ask(heap), FROSTLINE_CLOSED);
    EXPECT_FALSE(is_mapped(block));
}

TEST(HeapEnd, TheLastBlockTakesTheHeapWithIt) {
    frostline_heap* heap = nullptr;
    std::optional<TensorBuffer> first;
    std::optional<TensorBuffer> last;
    {
        HostMemory memory = open();
        heap = memory.get();
        first = *TensorBuffer::create(memory, kMi);
        last = *TensorBuffer::create(memory, 100);
    }
    void* const data = last->data();
    std::memset(data, 1, 100);
    first.reset();
    EXPECT_EQ(ask(heap), FROSTLINE_OK);
    // Nobody's mistake ends it.
    EXPECT_EQ(frostline_heap_free_sized(heap, data, 101), FROSTLINE_INVALID_ARGUMENT);
    EXPECT_EQ(frostline_heap_free(heap, nullptr), FROSTLINE_OK);
    EXPECT_EQ(ask(heap), FROSTLINE_OK);
    EXPECT_TRUE(is_mapped(data));
    last.reset();
    EXPECT_EQ(ask(heap), FROSTLINE_CLOSED);
    EXPECT_FALSE(is_mapped(data));
    EXPECT_EQ(frostline_heap_free(heap, data), FROSTLINE_CLOSED);
}

TEST(HeapEnd, AContainerMayGrowUntilItGoes) {
    frostline_heap* heap = nullptr;
    {
        std::unique_ptr<Bytes> bytes;
        {
            const HostMemory memory = open();
            heap = memory.get();
            bytes = std::make_unique<Bytes>(1000, 'a', allocator<char>(memory));
        }
        bytes->resize(kMi, 'b');
        const Bytes copy(*bytes);
        bytes.reset();
        EXPECT_EQ(ask(heap), FROSTLINE_OK);
        EXPECT_EQ(copy.front(), 'a');
        EXPECT_EQ(copy.back(), 'b');
    }
    EXPECT_EQ(ask(heap), FROSTLINE_CLOSED);
    void* block = nullptr;
    EXPECT_EQ(frostline_heap_alloc(heap, 100, 0, nullptr, &block), FROSTLINE_CLOSED);
    EXPECT_THROW(allocate_or_throw(heap, 100, 1, nullptr), std::bad_alloc);
}

TEST(HeapEnd, AssigningAnotherHeapLeavesTheFirst) {
    HostMemory memory = open();
    frostline_heap* const heap = memory.get();
    TensorBuffer buffer = *TensorBuffer::create(memory, kMi);
    memory = open();
    EXPECT_EQ(ask(heap), FROSTLINE_OK);
    EXPECT_EQ(memory.statistics()->live_blocks, 0U);
    buffer.reset();
    EXPECT_EQ(ask(heap), FROSTLINE_CLOSED);
}

TEST(HeapEnd, ItEndsOnce) {
    HostMemory memory = open();
    TensorBuffer buffer = *TensorBuffer::create(memory, kMi);
    EXPECT_EQ(memory.close().failure().status(), FROSTLINE_BUSY);
    EXPECT_EQ(frostline_heap_release(memory.get()), FROSTLINE_OK);
    EXPECT_EQ(frostline_heap_release(memory.get()), FROSTLINE_CLOSED);
    EXPECT_NE(std::strstr(frostline_last_error(), "last block"), nullptr) << frostline_last_error();
    EXPECT_EQ(memory.close().failure().status(), FROSTLINE_CLOSED);
    buffer.reset();
    EXPECT_EQ(memory.close().failure().status(), FROSTLINE_CLOSED);
    EXPECT_EQ(frostline_heap_release(nullptr), FROSTLINE_OK);
}

TEST(HeapEnd, WhatIsDoneWithAClosedOneIsToldAsThat) {
    HostMemory memory = open();
    EXPECT_TRUE(memory.close());
    const Outcome<void*> block = memory.allocate(100);
    ASSERT_FALSE(block);
    EXPECT_EQ(block.failure().status(), FROSTLINE_CLOSED);
    EXPECT_NE(std::strstr(block.failure().message(), "closed"), nullptr);
    EXPECT_EQ(memory.statistics().failure().status(), FROSTLINE_CLOSED);
    EXPECT_EQ(memory.close().failure().status(), FROSTLINE_CLOSED);
}

// Threads give back what lives, and take more as long as they have some, while the owner goes.
TEST(HeapEnd, BlocksComeBackOnAllThreadsWhileTheOwnerGoes) {
    constexpr int kThreads = 4;
    for (int round = 0; round < 150; ++round) {
        std::optional<HostMemory> memory = open();
        frostline_heap* const heap = memory->get();
        std::array<void*, kThreads> held{};
        for (void*& block : held) block = *memory->allocate(700);
        std::barrier begin(kThreads + 1);
        std::vector<std::thread> threads;
        for (int t = 0; t < kThreads; ++t) {
            threads.emplace_back([&, t] {
                begin.arrive_and_wait();
                for (int i = 0; i < t * 5; ++i) {
                    void* more = nullptr;
                    const std::size_t size = i % 2 == 0 ? 5000 : 50'000;
                    ASSERT_EQ(frostline_heap_alloc(heap, size, 0, nullptr, &more), FROSTLINE_OK)
                        << frostline_last_error();
                    std::memset(more, t, size);
                    ASSERT_EQ(frostline_heap_free(heap, more), FROSTLINE_OK)
                        << frostline_last_error();
                }
                ASSERT_EQ(frostline_heap_free_sized(heap, held[static_cast<std::size_t>(t)], 700),
                          FROSTLINE_OK)
                    << frostline_last_error();
            });
        }
        begin.arrive_and_wait();
        memory.reset();
        for (std::thread& thread : threads) thread.join();
        ASSERT_EQ(ask(heap), FROSTLINE_CLOSED);
        ASSERT_FALSE(is_mapped(held[0]));
    }
}

// Threads that have no block call on: each call is served or refused as closed.
TEST(HeapEnd, CallsBesideTheEndAreServedOrRefused) {
    for (int round = 0; round < 30; ++round) {
        HostMemory memory = open();
        frostline_heap* const heap = memory.get();
        std::barrier begin(3);
        std::vector<std::thread> threads;
        for (int t = 0; t < 2; ++t) {
            threads.emplace_back([&] {
                begin.arrive_and_wait();
                for (;;) {
                    void* block = nullptr;
                    const auto status = frostline_heap_alloc(heap, 3000, 0, nullptr, &block);
                    if (status == FROSTLINE_CLOSED) break;
                    ASSERT_EQ(status, FROSTLINE_OK) << frostline_last_error();
                    std::memset(block, 1, 3000);
                    ASSERT_EQ(frostline_heap_free(heap, block), FROSTLINE_OK)
                        << frostline_last_error();
                }
            });
        }
        begin.arrive_and_wait();
        if (round % 2 == 0) {
            EXPECT_EQ(frostline_heap_release(heap), FROSTLINE_OK);
        } else {
            frostline_status status = FROSTLINE_BUSY;
            while (status == FROSTLINE_BUSY) status = frostline_heap_close(heap);
            EXPECT_EQ(status, FROSTLINE_OK) << frostline_last_error();
        }
        for (std::thread& thread : threads) thread.join();
        EXPECT_EQ(ask(heap), FROSTLINE_CLOSED);
    }
}

// In a thread's last moments, when it has no note of its own any longer.
struct FreesAtTheEnd {
    frostline_heap* heap = nullptr;
    void* block = nullptr;
    ~FreesAtTheEnd() {
        if (heap != nullptr) frostline_heap_free(heap, block);
    }
};
thread_local FreesAtTheEnd at_the_end;

TEST(HeapEnd, AnEndingThreadMayFreeTheLastBlock) {
    frostline_heap* heap = nullptr;
    {
        HostMemory memory = open();
        heap = memory.get();
        void* const block = *memory.allocate(100);
        std::thread([&] {
            at_the_end.heap = heap;  // destroyed after what calls make
            at_the_end.block = block;
            EXPECT_EQ(ask(heap), FROSTLINE_OK);
            memory = open();
            EXPECT_EQ(ask(heap), FROSTLINE_OK);
        }).join();
    }
    EXPECT_EQ(ask(heap), FROSTLINE_CLOSED);
}

TEST(HeapEnd, AForkedChildGivesUpItsNameOnly) {
    HostMemory memory = open();
    TensorBuffer buffer = *TensorBuffer::create(memory, kMi);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        const bool given_up = frostline_heap_release(memory.get()) == FROSTLINE_OK;
        ::_exit(given_up && ask(memory.get()) == FROSTLINE_CLOSED ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
    EXPECT_EQ(memory.statistics()->live_blocks, 1U);
}

// Runs in a process of its own.
[[noreturn]] void end_with_a_block_that_nobody_owns() {
    {
        HostMemory memory = open();
        (void)memory.allocate(12345);
    }
    std::exit(7);
}

TEST(HeapEndDeathTest, WhatIsNeverFreedIsToldThoughTheOwnerWent) {
    EXPECT_EXIT(end_with_a_block_that_nobody_owns(), testing::ExitedWithCode(7),
                "ending: allocation 1 .*12345 bytes.*\n.*ending: 1 allocations");
}

}  // namespace
}  // namespace frostline
