// Proves that a program which links the library makes room itself: it is asked when nothing else
// helps, from within no call, and only where room would help.
#include "frostline/allocator.h"
#include "frostline/heap.h"
#include "frostline/host_memory.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <new>
#include <optional>
#include <vector>

namespace frostline {
namespace {

constexpr std::size_t kMi = std::size_t{1} << 20;

// Frees one of its blocks whenever it is asked.
struct Hoard {
    static std::size_t give(void* context, std::size_t size_bytes) noexcept {
        auto& hoard = *static_cast<Hoard*>(context);
        hoard.asked.push_back(size_bytes);
        if (hoard.asks_itself) hoard.asks_itself = hoard.memory->allocate(4 * kMi).has_value();
        if (hoard.blocks.empty()) return 0;
        EXPECT_TRUE(hoard.memory->free(hoard.blocks.back()));
        hoard.blocks.pop_back();
        return kMi;
    }

    HostMemory* memory;
    std::vector<void*> blocks{};
    std::vector<std::size_t> asked{};
    bool asks_itself = false;
};

class HeapPressureCall : public testing::Test {
   protected:
    void SetUp() override {
        memory_.emplace(*HostMemory::open({.name = "full", .capacity_bytes = 8 * kMi}));
        hoard_.memory = &*memory_;
        for (int i = 0; i < 8; ++i) hoard_.blocks.push_back(*memory_->allocate(kMi));
        ASSERT_TRUE(memory_->on_pressure(&Hoard::give, &hoard_));
    }
    void TearDown() override {
        for (void* const block : hoard_.blocks) EXPECT_TRUE(memory_->free(block));
        EXPECT_TRUE(memory_->close());
    }

    std::optional<HostMemory> memory_;
    Hoard hoard_{nullptr};
};

TEST_F(HeapPressureCall, IsAskedUntilTheRequestIsServed) {
    const auto block = memory_->allocate(3 * kMi);
    ASSERT_TRUE(block) << block.failure().message();
    EXPECT_EQ(hoard_.asked, std::vector<std::size_t>(3, 3 * kMi));
    EXPECT_EQ(memory_->statistics()->live_blocks, 6U);
    EXPECT_TRUE(memory_->free(*block));
}

TEST_F(HeapPressureCall, ServesContainers) {
    const std::vector<char, allocator<char>> text(2 * kMi, 'a', allocator<char>(*memory_));
    EXPECT_EQ(hoard_.asked.size(), 2U);
    EXPECT_EQ(text.back(), 'a');
}

TEST_F(HeapPressureCall, WhenItHasNoMoreTheRequestIsRefusedInItsOwnWords) {
    const std::vector<void*> kept(hoard_.blocks.begin() + 2, hoard_.blocks.end());
    hoard_.blocks.resize(2);
    const auto refused = memory_->allocate(3 * kMi);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.failure().status(), FROSTLINE_NO_SPACE);
    EXPECT_NE(std::strstr(refused.failure().message(), "no room for 3145728 bytes"), nullptr);
    EXPECT_EQ(hoard_.asked.size(), 3U);
    for (void* const block : kept) EXPECT_TRUE(memory_->free(block));
}

TEST_F(HeapPressureCall, IsNotAskedForWhatNoRoomCouldServe) {
    EXPECT_EQ(memory_->allocate(9 * kMi).failure().status(), FROSTLINE_NO_SPACE);
    EXPECT_EQ(memory_->allocate(kMi, 3).failure().status(), FROSTLINE_INVALID_ARGUMENT);
    EXPECT_TRUE(hoard_.asked.empty());
}

TEST_F(HeapPressureCall, IsNotAskedByItself) {
    hoard_.asks_itself = true;
    const auto block = memory_->allocate(kMi);
    ASSERT_TRUE(block);
    EXPECT_TRUE(memory_->free(*block));
    EXPECT_EQ(hoard_.asked.size(), 1U);
    EXPECT_FALSE(hoard_.asks_itself) << "there was room for it";
}

TEST_F(HeapPressureCall, IsTakenAway) {
    ASSERT_TRUE(memory_->on_pressure(nullptr, nullptr));
    EXPECT_EQ(memory_->allocate(kMi).failure().status(), FROSTLINE_NO_SPACE);
    EXPECT_TRUE(hoard_.asked.empty());
    EXPECT_EQ(frostline_heap_on_pressure(nullptr, &Hoard::give, nullptr),
              FROSTLINE_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace frostline
