// Proves what a heap says of its blocks: all that live, read while other threads change them; the
// block in which a wrong address lies; and places of the program that fit, each whole.
#include "allocator/heap/heap_places.h"
#include "tests/allocator/heap/heap_fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace frostline {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

class HeapReports : public DeviceHeapFixture {
   protected:
    /// Calls `look` while threads allocate and free, all the time that they take for it. Some keep
    /// to slots, which come from their caches and take no lock of the heap.
    template <class Look>
    void beside_threads(Look&& look) {
        constexpr StreamHandle kThreads = 3;
        std::atomic<StreamHandle> busy{kThreads};
        std::vector<std::thread> threads;
        for (StreamHandle i = 0; i < kThreads; ++i) {
            threads.emplace_back([this, i, &busy] {
                const std::uint64_t most = i == 0 ? 300 << 10 : 5000;
                for (int round = 0; round < (i == 0 ? 200 : 10'000); ++round) {
                    std::array<void*, 9> blocks{};
                    for (std::size_t b = 0; b < blocks.size(); ++b) {
                        blocks[b] = get(700 + b % 3 * (most / 2 - 700), 2 + i);
                    }
                    for (void* const block : blocks) put(block);
                }
                --busy;
            });
        }
        while (busy > 0) look();
        for (std::thread& thread : threads) thread.join();
    }
    Error refused(const Result<void>& result) {
        EXPECT_FALSE(result);
        return result ? Error(Errc::io, 0, "it succeeded") : result.error();
    }
    static void* at(void* block, std::uint64_t distance) {
        return static_cast<std::byte*>(block) + distance;
    }
};

TEST_F(HeapReports, WhatLivesIsReadWhileThreadsAllocateAndFree) {
    std::vector<void*> held;
    for (const std::uint64_t size : {900, 30 << 10, 200 << 10}) held.push_back(get(size));
    beside_threads([&] {
        const std::vector<HeapAllocation> living = heap_->live();
        ASSERT_GE(living.size(), held.size());
        for (std::size_t i = 0; i < held.size(); ++i) {
            EXPECT_EQ(living[i].address, number(held[i])) << "the oldest come first";
        }
        for (const HeapAllocation& each : living) {
            EXPECT_NE(each.birth, 0U);
            EXPECT_LE(each.size_bytes, 300U << 10);
        }
    });
    EXPECT_EQ(heap_->live().size(), held.size());
}

TEST_F(HeapReports, AMisuseIsExplainedWhileThreadsAllocateAndFree) {
    void* const block = get(900);
    beside_threads([&] {
        // Right behind the block lie those of the others, in whatever state.
        for (std::uint64_t distance = 512; distance < kChunk; distance += 16 * kKi) {
            const Error error = refused(heap_->record_stream(at(block, distance + 8), 1));
            EXPECT_EQ(error.code(), Errc::invalid_argument);
        }
    });
}

TEST_F(HeapReports, AnAddressInsideABlockIsToldWithTheBlock) {
    struct Case {
        std::uint64_t size;
        std::uint64_t distance;
    };
    const Case cases[] = {{700, 8},         {700, 512},          {8 << 10, 4096},
                          {40 << 10, 512},  {40 << 10, 40'000},  {700 << 10, 1},
                          {700 << 10, 512}, {700 << 10, 700'000}};
    for (const Case& each : cases) {
        void* const block = get(each.size);
        const std::string told = refused(heap_->free(at(block, each.distance))).message();
        EXPECT_THAT(told, HasSubstr("lies " + std::to_string(each.distance) + " bytes inside"));
        EXPECT_THAT(told, HasSubstr(fmt::format("at {}, of {} bytes", block, each.size)));
        EXPECT_THAT(told, HasSubstr(fmt::format("allocation {},", heap_->describe(block)->birth)));
        EXPECT_THAT(told, Not(HasSubstr("freed already")));
        EXPECT_TRUE(heap_->describe(block)) << "it lives as before";
        // A slot stays with its thread, which knows what it was.
        put(block);
        const std::string after = refused(heap_->free(at(block, each.distance))).message();
        if (each.size <= kLargestSlot) {
            EXPECT_THAT(after, HasSubstr("freed already"));
        }
    }
}

TEST_F(HeapReports, AnAddressInsideAWindowIsToldWithTheWindow) {
    make({kChunk, 64, 16, 64, 4});
    void* const first = get(2 * kChunk);
    void* const gap = get(kChunk);
    put(first);
    void* const window = get(3 * kChunk);
    ASSERT_GE(number(window), memory_->addresses().windows());
    EXPECT_THAT(refused(heap_->free(at(window, kChunk + 512))).message(),
                HasSubstr(fmt::format("lies {} bytes inside another, at {}, of {} bytes",
                                      kChunk + 512, window, 3 * kChunk)));
    put(window);
    put(gap);
}

TEST_F(HeapReports, AnAddressInNoBlockIsToldAsSuch) {
    put(get(700 << 10));
    ASSERT_TRUE(heap_->trim(true));
    const HeapAddresses all = memory_->addresses();
    EXPECT_THAT(refused(heap_->free(reinterpret_cast<void*>(all.address + 4096))).message(),
                HasSubstr("freed before, or never handed out"));
}

// The records of a span that is gone serve the next one, wherever that lies.
TEST_F(HeapReports, ASlotIsNotToldAsOneThatWasFreedElsewhere) {
    std::vector<void*> slots;
    for (int i = 0; i < 4; ++i) slots.push_back(get(512));
    for (void* const slot : slots) put(slot);
    ASSERT_TRUE(heap_->trim(true));
    void* const in_their_place = get(kSpanBytes);
    void* const elsewhere = get(512);
    ASSERT_NE(elsewhere, slots[0]);
    EXPECT_THAT(refused(heap_->free(at(elsewhere, 512))).message(),
                HasSubstr("freed before, or never handed out"));
    put(elsewhere);
    put(in_their_place);
}

TEST_F(HeapReports, PlacesAreToldOfMisuseAndLeaks) {
    HeapOptions options;
    options.debug = true;
    make({}, options);
    void* const block = get(700);
    ASSERT_EQ(heap_->live().size(), 1U);
    EXPECT_THAT(heap_->live()[0].place, MatchesRegex("allocated at [^ ]+\\+0x[0-9a-f]+.*"));
    EXPECT_EQ(heap_->describe(block)->place, heap_->live()[0].place);
    const std::string inside = refused(heap_->free(at(block, 8))).message();
    EXPECT_THAT(inside, HasSubstr("; allocated at "));
    put(block);
    const std::string twice = refused(heap_->free(block)).message();
    EXPECT_THAT(twice, HasSubstr("; allocated at "));
    EXPECT_THAT(twice, HasSubstr(", freed at "));
    // The end of a call, or how many more there are.
    EXPECT_THAT(twice, MatchesRegex(".*(\\+0x[0-9a-f]+|< [0-9]+ more)"));
}

// Calls of this program, which has long names for its files at times.
HeapPlaces::Frames some_frames(std::size_t count) {
    HeapPlaces::Frames frames{};
    auto* code = reinterpret_cast<std::byte*>(&some_frames);
    for (std::size_t i = 0; i < count; ++i) frames[i] = code + i;
    return frames;
}

TEST(HeapPlacesText, LeavesOutWholeCallsAndCountsThem) {
    const HeapPlaces::Places places{some_frames(6), some_frames(4)};
    const std::string all = HeapPlaces::story(places);
    EXPECT_THAT(all, Not(HasSubstr("more")));
    for (std::size_t room = 0; room <= all.size() + 80; ++room) {
        const std::string story = HeapPlaces::story(places, room);
        ASSERT_LE(story.size(), room);
        if (story.empty()) continue;
        std::size_t calls = 0;
        // Every word is one of the story's own, a count, or a call as the whole story has it.
        std::istringstream words(story);
        for (std::string word; words >> word;) {
            if (word.ends_with(",")) word.pop_back();
            ASSERT_THAT(" " + all + ", more 1 2 3 4 5 6 ", HasSubstr(word)) << story;
            if (word.find("+0x") == std::string::npos) continue;
            ++calls;
            ASSERT_TRUE(all.find(word + " ") != std::string::npos ||
                        all.find(word + ",") != std::string::npos || all.ends_with(word))
                << word << " in " << story;
        }
        const std::size_t left_out = 10 - calls;
        ASSERT_EQ(left_out == 0, story == all);
        if (left_out > 0) {
            ASSERT_THAT(story, HasSubstr("more"));
        }
    }
    EXPECT_EQ(HeapPlaces::story({}), "");
    EXPECT_EQ(HeapPlaces::story({some_frames(1), {}}).substr(0, 13), "allocated at ");
}

}  // namespace
}  // namespace frostline
