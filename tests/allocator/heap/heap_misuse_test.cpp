// Proves that every way of calling a heap wrongly is refused in words, counted, told to whoever
// asked, and changes nothing.
#include "tests/allocator/heap/heap_fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace frostline {
namespace {

using testing::HasSubstr;

class HeapMisuse : public DeviceHeapFixture {
   protected:
    void SetUp() override {
        HeapOptions options;
        options.name = "the tested heap";
        options.on_misuse = [this](const Error& error) { told_.emplace_back(error.message()); };
        make({}, options);
    }
    void* at(void* block, std::uint64_t distance) {
        return static_cast<std::byte*>(block) + distance;
    }
    /// The call was refused as misuse, with these words, once.
    void expect_refused(const Result<void>& result, const char* words) {
        ASSERT_FALSE(result);
        EXPECT_EQ(result.error().code(), Errc::invalid_argument);
        EXPECT_THAT(result.error().message(), HasSubstr(words));
        EXPECT_THAT(result.error().message(), HasSubstr("the tested heap"));
        ASSERT_FALSE(told_.empty());
        EXPECT_EQ(told_.back(), result.error().message());
        EXPECT_EQ(told_.size(), heap_->statistics().misuses);
        heap_->check();
    }

    std::vector<std::string> told_;
};

// A slot, a block of middling size, and a large one.
constexpr std::uint64_t kSizes[] = {700, 40 << 10, 700 << 10};

TEST_F(HeapMisuse, FreeingTwiceIsRefusedWhereverTheBlockWent) {
    for (const std::uint64_t size : kSizes) {
        void* const block = get(size);
        put(block);
        expect_refused(heap_->free(block), "freed");
        ASSERT_TRUE(heap_->trim(true));
        expect_refused(heap_->free(block), "freed");
        EXPECT_EQ(heap_->statistics().live_blocks, 0U);
    }
}

TEST_F(HeapMisuse, FreeingTwiceWhileOtherStreamsUseItIsRefused) {
    for (const std::uint64_t size : kSizes) {
        void* const block = get(size, 1);
        ASSERT_TRUE(heap_->record_stream(block, 2));
        queue(2);
        put(block);
        expect_refused(heap_->free(block), "freed");
        EXPECT_FALSE(heap_->record_stream(block, 3));
        finish(2);
    }
}

// The block is named as used while it is freed, and waits for a stream by then. What it waits in
// must not change any more, which AddressSanitizer sees.
TEST_F(HeapMisuse, NamingAStreamForABlockThatAnotherThreadFreesIsServedOrRefused) {
    constexpr StreamHandle kNamed = 20;
    make();
    queue(2);
    for (int round = 0; round < 50; ++round) {
        void* const block = get(9000, 1);
        ASSERT_TRUE(heap_->record_stream(block, 2));
        std::atomic<int> named = 0;
        std::vector<std::thread> others;
        for (StreamHandle first = 100; first <= 300; first += 100) {
            others.emplace_back([&, first] {
                for (StreamHandle i = 0; i < kNamed; ++i, ++named) {
                    if (!heap_->record_stream(block, first + i)) return;
                }
            });
        }
        while (named < round % 10) std::this_thread::yield();
        put(block);
        for (std::thread& other : others) other.join();
    }
    EXPECT_EQ(heap_->statistics().live_blocks, 0U);
    finish(2);
    EXPECT_TRUE(heap_->trim(true));
    EXPECT_EQ(heap_->statistics().pending, 0U);
    EXPECT_EQ(heap_->statistics().mapped, 0U);
}

TEST_F(HeapMisuse, AForeignAddressIsRefused) {
    int foreign = 0;
    expect_refused(heap_->free(&foreign), "is not an address of");
    expect_refused(heap_->record_stream(&foreign, 1), "is not an address of");
    EXPECT_FALSE(heap_->describe(&foreign));
    EXPECT_FALSE(heap_->owns(&foreign));
    const HeapAddresses all = memory_->addresses();
    EXPECT_TRUE(heap_->owns(reinterpret_cast<void*>(all.address)));
    EXPECT_TRUE(heap_->owns(reinterpret_cast<void*>(all.address + all.size_bytes() - 1)));
    EXPECT_FALSE(heap_->owns(reinterpret_cast<void*>(all.address + all.size_bytes())));
    EXPECT_FALSE(heap_->owns(reinterpret_cast<void*>(all.address - 1)));
}

TEST_F(HeapMisuse, AnAddressInsideABlockIsRefused) {
    for (const std::uint64_t size : kSizes) {
        void* const block = get(size);
        for (const std::uint64_t distance : {1, 511, 512, 513}) {
            if (distance >= size) continue;
            expect_refused(heap_->free(at(block, distance)), "no block of");
            EXPECT_FALSE(heap_->describe(at(block, distance)));
        }
        EXPECT_TRUE(heap_->describe(block));
        put(block);
    }
}

TEST_F(HeapMisuse, AnAddressThatWasNeverHandedOutIsRefused) {
    put(get(700));
    const HeapAddresses all = memory_->addresses();
    expect_refused(heap_->free(reinterpret_cast<void*>(all.address + (1 << 20))), "no block of");
    expect_refused(heap_->free(reinterpret_cast<void*>(all.windows())), "no block of");
    // A vacant slot of a span that lives, and the room behind its last slot.
    void* const slot = get(1500);
    expect_refused(heap_->free(at(slot, 1536)), "freed");
    const std::uint64_t span = number(slot) / kSpanBytes * kSpanBytes;
    expect_refused(heap_->free(reinterpret_cast<void*>(span + kSpanBytes - 1024)), "no block of");
}

TEST_F(HeapMisuse, TheWrongSizeIsRefusedAndTheBlockLives) {
    for (const std::uint64_t size : kSizes) {
        void* const block = get(size);
        expect_refused(heap_->free(block, size + 1), std::to_string(size).c_str());
        expect_refused(heap_->free(block, 0), std::to_string(size).c_str());
        EXPECT_EQ(heap_->describe(block)->size_bytes, size);
        EXPECT_TRUE(heap_->free(block, size));
        EXPECT_FALSE(heap_->free(block, size));
    }
}

TEST_F(HeapMisuse, SizesBeyondAllMemoryAreRefused) {
    const std::uint64_t capacity = memory_->options().capacity_chunks * kChunk;
    for (const std::uint64_t size :
         {UINT64_MAX, UINT64_MAX - 511, std::uint64_t{1} << 63, capacity + 1}) {
        const auto block = heap_->allocate(size, 1);
        ASSERT_FALSE(block);
        EXPECT_EQ(block.error().code(), Errc::no_space);
        EXPECT_THAT(block.error().message(), HasSubstr(std::to_string(size)));
    }
    EXPECT_EQ(heap_->statistics().mapped, 0U);
    put(get(capacity));
}

TEST_F(HeapMisuse, AlignmentsThatAreNonsenseAreRefused) {
    for (const std::uint64_t alignment : {std::uint64_t{0}, std::uint64_t{3}, std::uint64_t{768},
                                          std::uint64_t{4} << 20, UINT64_MAX}) {
        const auto block = heap_->allocate(4096, 1, alignment);
        ASSERT_FALSE(block) << alignment;
        EXPECT_EQ(block.error().code(), Errc::invalid_argument);
        EXPECT_THAT(block.error().message(), HasSubstr("power of two"));
    }
    for (std::uint64_t alignment = 1; alignment <= std::uint64_t{2} << 20; alignment *= 2) {
        void* const block = get(4096, 1, alignment);
        EXPECT_EQ(number(block) % alignment, 0U);
        put(block);
    }
}

TEST_F(HeapMisuse, NothingIsNothing) {
    EXPECT_EQ(get(0), nullptr);
    put(nullptr);
    EXPECT_TRUE(heap_->free(nullptr, 100));
    EXPECT_TRUE(heap_->record_stream(nullptr, 1));
    EXPECT_EQ(heap_->statistics().births, 0U);
    EXPECT_EQ(heap_->statistics().misuses, 0U);
}

TEST_F(HeapMisuse, ASecondFreeOfAReusedAddressIsToldByTheId) {
    void* const first = get(700);
    const TensorId id = heap_->describe(first)->id;
    put(first);
    void* const second = get(700);
    ASSERT_EQ(first, second);
    EXPECT_NE(heap_->describe(second)->id, id);
    put(second);
    ASSERT_TRUE(heap_->trim(true));
    EXPECT_NE(heap_->describe(get(700))->id, id);
}

TEST_F(HeapMisuse, OfTwoThreadsThatFreeTheSameBlockOneIsRefused) {
    for (int round = 0; round < 200; ++round) {
        void* const block = get(kSizes[round % 3]);
        std::atomic<int> freed{0};
        std::thread other([&] { freed += heap_->free(block).has_value() ? 1 : 0; });
        freed += heap_->free(block).has_value() ? 1 : 0;
        other.join();
        ASSERT_EQ(freed, 1);
        ASSERT_EQ(heap_->statistics().live_blocks, 0U);
    }
}

}  // namespace
}  // namespace frostline
