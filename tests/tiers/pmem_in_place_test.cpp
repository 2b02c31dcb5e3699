// Proves that bytes of a pmem tier can be used where they lie: what is written in place is durable
// after flush and fence, and the pages of a file are let go again. Also that a fence of a whole
// batch drains once, and what a tier says about how it is reached.
#include "tests/tiers/process_state.h"
#include "tests/tiers/tier_specimen.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>

namespace frostline {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class PmemInPlace : public testing::Test {
   protected:
    std::unique_ptr<PmemTier> tier(const SystemCalls& calls = faulty_system_calls()) const {
        auto tier = PmemTier::create({TierId{3}, folder_.file("pool"), 32 * kMiB, &calls});
        EXPECT_TRUE(tier.has_value()) << tier.error().message();
        return *std::move(tier);
    }
    static bool is_pmem(const Tier& tier) {
        return tier.info().access.find("msync") == std::string::npos;
    }

    ScratchFolder folder_;
};

/// The fault layer's table, but every file is persistent memory.
const SystemCalls& calls_with_pmem() {
    static const SystemCalls calls = [] {
        SystemCalls table = faulty_system_calls();
        table.pmem_map_file = [](const char* path, size_t length, int flags, mode_t mode,
                                 size_t* mapped, int* is_pmem) {
            void* const address =
                faulty_system_calls().pmem_map_file(path, length, flags, mode, mapped, is_pmem);
            *is_pmem = 1;
            return address;
        };
        return table;
    }();
    return calls;
}

TEST_F(PmemInPlace, BytesAreServedWhereTheyLie) {
    for (const SystemCalls* calls : {&faulty_system_calls(), &calls_with_pmem()}) {
        const auto tier = this->tier(*calls);
        const auto other = tier->reserve(3 * kPageBytes);
        const auto extent = tier->reserve(100001);
        auto random = random_stream(70);
        Bytes bytes = random_bytes(random, 100001);
        ASSERT_TRUE(tier->write(*extent, 0, bytes).has_value());
        const auto span = tier->map_in_place(*extent);
        ASSERT_TRUE(span.has_value()) << span.error().message();
        ASSERT_EQ(span->data(), tier->address(*extent));
        ASSERT_TRUE(std::equal(span->begin(), span->end(), bytes.begin(), bytes.end()));
        (*span)[77] = bytes[77] = std::byte{1};
        tier->flush_in_place(span->subspan(77, 1));
        ASSERT_TRUE(tier->fence(*extent).has_value());
        EXPECT_TRUE(read_all(*tier, *extent) == bytes);
        tier->unmap_in_place(*extent);
        EXPECT_TRUE(std::equal(span->begin(), span->end(), bytes.begin(), bytes.end()));
        tier->release(*extent);
        tier->release(*other);
    }
}

TEST_F(PmemInPlace, AFlushIsForPmemAndAFenceDrainsOnceForABatch) {
    FaultInjection calls(Fault{});
    const auto tier = this->tier(calls_with_pmem());
    std::array<Extent, 5> batch{};
    for (Extent& each : batch) {
        each = *tier->reserve(10000);
        ASSERT_TRUE(tier->write(each, 0, Bytes(10000, std::byte{1})).has_value());
    }
    EXPECT_EQ(calls.uses(Call::pmem_memcpy), 5U);
    EXPECT_EQ(calls.uses(Call::pmem_drain), 0U) << "a copy waited for the medium";
    ASSERT_TRUE(tier->fence(batch).has_value());
    EXPECT_EQ(calls.uses(Call::pmem_drain), 1U);
    EXPECT_EQ(calls.uses(Call::pmem_flush), 0U);
    tier->flush_in_place(tier->map_in_place(batch[0])->first(10));
    EXPECT_EQ(calls.uses(Call::pmem_flush), 1U);
    EXPECT_EQ(calls.uses(Call::pmem_drain), 1U);
    EXPECT_EQ(calls.uses(Call::pmem_msync), 0U);
}

TEST_F(PmemInPlace, PagesOfAFileAreLetGo) {
    const auto tier = this->tier();
    if (is_pmem(*tier)) return;  // persistent memory is no memory of the process
    for (const bool by_release : {false, true}) {
        const auto extent = tier->reserve(16 * kMiB);
        const auto span = tier->map_in_place(*extent);
        ASSERT_TRUE(span.has_value());
        std::fill(span->begin(), span->end(), std::byte{3});
        EXPECT_GE(mapping_bytes(span->data(), "Rss"), 16 * kMiB) << "the measurement sees nothing";
        if (!by_release) tier->unmap_in_place(*extent);
        tier->release(*extent);
        EXPECT_EQ(mapping_bytes(span->data(), "Rss"), 0U) << by_release;
    }
}

TEST_F(PmemInPlace, WhatIsNotTheTiersIsRefused) {
    const auto tier = this->tier();
    const std::uint64_t capacity = tier->info().capacity_bytes;
    const TierId own = tier->info().id;
    for (const Extent& wrong :
         {Extent{TierId{4}, 0, 10}, Extent{own, capacity, 1}, Extent{own, 0, capacity + 1},
          Extent{own, UINT64_MAX, 2}, Extent{own, 2, UINT64_MAX}}) {
        const auto span = tier->map_in_place(wrong);
        ASSERT_FALSE(span.has_value());
        EXPECT_EQ(span.error().code(), Errc::invalid_argument);
    }
}

TEST_F(PmemInPlace, ItsCardSaysHowItIsReached) {
    const auto tier = this->tier();
    const TierInfo& info = tier->info();
    if (info.label == Label::real) {
        EXPECT_EQ(info.access, "fsdax, non-temporal copies");
        EXPECT_EQ(info.fallback, "");
    } else if (is_pmem(*tier)) {
        EXPECT_EQ(info.access, "file, non-temporal copies");
        EXPECT_NE(info.fallback.find("PMEM_IS_PMEM_FORCE"), std::string::npos);
    } else {
        EXPECT_EQ(info.access, "file, msync");
        EXPECT_EQ(info.fallback,
                  folder_.file("pool") + " is not on a DAX file system: msync makes it durable");
    }
}

}  // namespace
}  // namespace frostline
