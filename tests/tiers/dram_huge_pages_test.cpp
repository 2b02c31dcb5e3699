// Proves that huge pages come where they help, and never make bytes resident that no extent is
// charged for.
#include "tests/tiers/huge_pages.h"
#include "tests/tiers/process_state.h"
#include "tests/tiers/tier_specimen.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

namespace frostline {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// What the tier advised, as the kernel was told; and the memory that it mapped.
struct Advice {
    std::uint64_t start;
    std::uint64_t end;
    int advice;
};
std::vector<Advice> advised;
std::pair<void*, std::size_t> mapped;
int refused_advice = -1;

const SystemCalls& watching_calls() {
    static const SystemCalls calls = [] {
        SystemCalls table = SystemCalls::real();
        table.madvise = [](void* address, size_t length, int advice) {
            if (advice == refused_advice) {
                errno = EINVAL;
                return -1;
            }
            const auto start = reinterpret_cast<std::uint64_t>(address);
            advised.push_back({start, start + length, advice});
            return ::madvise(address, length, advice);
        };
        table.mmap = [](void* address, size_t length, int protection, int flags, int fd,
                        off_t offset) {
            void* const memory = ::mmap(address, length, protection, flags, fd, offset);
            mapped = {memory, length};
            return memory;
        };
        return table;
    }();
    return calls;
}

class DramHugePages : public testing::Test {
   protected:
    DramHugePages() {
        advised.clear();
        refused_advice = -1;
    }
    static std::unique_ptr<DramTier> dram(
        std::uint64_t capacity_bytes,
        DramTier::HugePages huge_pages = DramTier::HugePages::large_extents) {
        return *DramTier::create({.capacity_bytes = capacity_bytes,
                                  .calls = &watching_calls(),
                                  .huge_pages = huge_pages});
    }
    static std::vector<Advice> huge_advice() {
        std::vector<Advice> found;
        for (const Advice& each : advised) {
            if (each.advice == MADV_HUGEPAGE) found.push_back(each);
        }
        return found;
    }
    // Inlined, GCC 12 takes the freeing of its vector for a mistake.
    [[gnu::noinline]] static std::uint64_t resident() {
        return resident_bytes(mapped.first, mapped.second);
    }
};

void touch(const DramTier& tier, const Extent& extent) {
    std::memset(tier.address(extent), 0x77, extent.length_bytes);
}

TEST_F(DramHugePages, OnlyTheWholeHugePagesInsideALargeExtentAreAdvised) {
    const auto tier = dram(32 * kMiB);
    const auto small = tier->reserve(kMiB);
    EXPECT_TRUE(huge_advice().empty());
    const auto large = tier->reserve(5 * kMiB);
    EXPECT_EQ(large->offset % kHugePageBytes, 0U);
    ASSERT_EQ(huge_advice().size(), 1U);
    EXPECT_EQ(huge_advice().front().start, large->offset);
    EXPECT_EQ(huge_advice().front().end, large->offset + 4 * kMiB) << "the rest is no whole one";
    EXPECT_EQ(tier->usage().used_bytes, 6 * kMiB) << "charged as it is, not rounded";
    tier->release(*large);
    EXPECT_EQ(advised.back().advice, MADV_NOHUGEPAGE) << "a small extent may come there next";
    EXPECT_EQ(advised.back().start, large->offset);
    EXPECT_EQ(advised.back().end, large->offset + 4 * kMiB);
    tier->release(*small);
}

TEST_F(DramHugePages, ALargeExtentIsInHugePagesWhereTheKernelHasSome) {
    const auto tier = dram(64 * kMiB);
    const auto extent = tier->reserve(32 * kMiB);
    touch(*tier, *extent);
    expect_huge_pages(tier->address(*extent));
}

TEST_F(DramHugePages, WhatIsResidentIsWhatIsCharged) {
    const std::uint64_t capacity = 24 * kMiB;
    const auto tier = dram(capacity);
    auto random = random_stream(80);
    std::vector<Extent> held;
    std::uint64_t used = 0;
    for (int step = 0; step < 400; ++step) {
        if (between(random, 0, 99) < 55 || held.empty()) {
            const bool large = between(random, 0, 2) == 0;
            const std::uint64_t size =
                large ? between(random, 2 * kMiB, 9 * kMiB) : between(random, 1, 64 * kPageBytes);
            const auto extent = tier->reserve(size);
            if (!extent) continue;
            touch(*tier, *extent);
            used += round_up_to_page(size);
            held.push_back(*extent);
        } else {
            std::swap(held[between(random, 0, held.size() - 1)], held.back());
            used -= round_up_to_page(held.back().length_bytes);
            tier->release(held.back());
            held.pop_back();
        }
        ASSERT_EQ(tier->usage().used_bytes, used);
        ASSERT_EQ(resident(), used + tier->cached_bytes()) << "step " << step;
        ASSERT_LE(resident(), capacity);
    }
    EXPECT_FALSE(huge_advice().empty());
}

TEST_F(DramHugePages, ASmallExtentInALargeOnesPlaceGetsASmallPage) {
    const auto tier = dram(8 * kMiB);
    const auto large = tier->reserve(4 * kMiB);
    touch(*tier, *large);
    tier->release(*large);
    // The cache is given back, so that the next touch takes new pages.
    const auto buffer = std::make_unique<std::byte[]>(8 * kMiB);
    const auto adopted =
        tier->adopt({buffer.get(), 8 * kMiB}, {[](void*, std::byte*, std::uint64_t) {}, nullptr});
    ASSERT_TRUE(adopted.has_value());
    EXPECT_EQ(resident(), 0U);
    tier->cancel_adoption(*adopted);
    const auto small = tier->reserve(1);
    EXPECT_EQ(small->offset, large->offset);
    touch(*tier, *small);
    EXPECT_EQ(resident(), kPageBytes);
}

TEST_F(DramHugePages, AKernelWithoutThemIsNamedAndNotAskedAgain) {
    refused_advice = MADV_NOHUGEPAGE;
    const auto tier = dram(16 * kMiB);
    EXPECT_NE(tier->info().fallback.find("huge pages: Invalid argument"), std::string::npos)
        << tier->info().fallback;
    tier->release(*tier->reserve(4 * kMiB));
    EXPECT_TRUE(huge_advice().empty());
    EXPECT_EQ(tier->cached_bytes(), 4 * kMiB);
}

TEST_F(DramHugePages, AdviceThatCannotBeTakenBackCostsAddressesAndNoMemory) {
    const auto tier = dram(8 * kMiB);
    const auto first = tier->reserve(4 * kMiB);
    touch(*tier, *first);
    refused_advice = MADV_NOHUGEPAGE;
    tier->release(*first);
    refused_advice = -1;
    EXPECT_EQ(tier->usage().used_bytes, 0U);
    EXPECT_EQ(resident(), 0U);
    const auto second = tier->reserve(8 * kMiB);
    ASSERT_TRUE(second.has_value()) << "the budget is all there";
    EXPECT_NE(second->offset, first->offset);
}

TEST_F(DramHugePages, NoneAreAdvisedWhereNoneAreWanted) {
    const auto tier = dram(16 * kMiB, DramTier::HugePages::never);
    tier->release(*tier->reserve(8 * kMiB));
    EXPECT_TRUE(huge_advice().empty());
    EXPECT_EQ(tier->info().fallback, "");
    EXPECT_EQ(tier->info().access.find("huge"), std::string::npos);
}

}  // namespace
}  // namespace frostline
