// Proves that whoever makes room for a heap may use it: it is asked while the heap is open to all,
// so that neither what it frees nor whom it waits for can hold it up.
#include "tests/allocator/heap/heap_fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <future>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace frostline {
namespace {

class Handler : public PressureHandler {
   public:
    std::uint64_t make_room(std::uint64_t size_bytes) noexcept override {
        ++asked;
        return answer(size_bytes);
    }
    std::function<std::uint64_t(std::uint64_t)> answer;
    int asked = 0;
};

class HeapHandler : public DeviceHeapFixture {
   protected:
    void make_with_handler(std::uint64_t chunks) {
        HeapOptions options;
        options.pressure = &handler_;
        make({kChunk, 64, 16, 64, chunks}, options);
    }
    void TearDown() override { heap_.reset(); }

    Handler handler_;
};

TEST_F(HeapHandler, MayFreeBlocksOfTheSameHeap) {
    for (const bool work_is_queued : {false, true}) {
        make_with_handler(4);
        handler_.asked = 0;
        std::vector<void*> blocks;
        for (int i = 0; i < 4; ++i) blocks.push_back(get(kChunk));
        handler_.answer = [&](std::uint64_t) -> std::uint64_t {
            if (blocks.empty()) return 0;
            if (work_is_queued) queue(1);
            put(blocks.back());
            blocks.pop_back();
            return kChunk;
        };
        put(get(3 * kChunk, 2));
        EXPECT_EQ(handler_.asked, 3);
        EXPECT_EQ(blocks.size(), 1U);
        put(blocks.back());
        blocks.clear();
        EXPECT_FALSE(heap_->allocate(kChunk * 4 + 1, 2));
        end();
    }
}

TEST_F(HeapHandler, MayWaitForAThreadThatAllocates) {
    make_with_handler(8);
    std::vector<void*> blocks;
    for (int i = 0; i < 4; ++i) blocks.push_back(get(kChunk));
    std::mutex others;
    std::promise<void> held;
    std::promise<void> asked;
    handler_.answer = [&](std::uint64_t) -> std::uint64_t {
        if (blocks.empty()) return 0;
        asked.set_value();
        const std::lock_guard lock(others);
        for (void* const block : std::exchange(blocks, {})) put(block);
        return 4 * kChunk;
    };
    std::thread other([&] {
        const std::lock_guard lock(others);
        held.set_value();
        asked.get_future().wait();
        put(get(kChunk, 2));  // needs the heap's lock, with what the handler waits for held
    });
    held.get_future().wait();
    put(get(6 * kChunk));
    other.join();
    EXPECT_EQ(handler_.asked, 1);
    end();
}

TEST_F(HeapHandler, IsNotAskedForWhatItAsksForItself) {
    make_with_handler(4);
    void* block = get(3 * kChunk);
    bool was_refused = false;
    handler_.answer = [&](std::uint64_t) -> std::uint64_t {
        const auto mine = heap_->allocate(2 * kChunk, 1);
        was_refused = !mine;
        put(get(kChunk / 2));  // there is room for that
        put(std::exchange(block, nullptr));
        return 3 * kChunk;
    };
    put(get(4 * kChunk));
    EXPECT_TRUE(was_refused);
    EXPECT_EQ(handler_.asked, 1);
    end();
}

TEST_F(HeapHandler, TheRefusalSpeaksOfTheMomentBeforeTheHandlerHadNothing) {
    make_with_handler(4);
    void* const block = get(4 * kChunk);
    handler_.answer = [&](std::uint64_t) -> std::uint64_t { return 0; };
    const auto refused = heap_->allocate(kChunk, 1);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), Errc::no_space);
    EXPECT_THAT(refused.error().message(), testing::HasSubstr("1.00 of 1.00 MiB are mapped"));
    EXPECT_EQ(handler_.asked, 1);
    put(block);
    end();
}

}  // namespace
}  // namespace frostline
