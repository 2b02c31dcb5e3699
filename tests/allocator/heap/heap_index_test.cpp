// Proves that the index finds what is in it and nothing else, whatever was put in and taken out
// before, and that readers beside a writer never see another's record and miss nothing for good.
#include "allocator/heap/address_index.h"
#include "tests/tiers/seed.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace frostline {
namespace {

constexpr std::uint64_t kBase = std::uint64_t{1} << 44;
constexpr std::uint64_t kUnit = AddressIndex::kUnitBytes;

TEST(AddressIndex, HoldsWhatAMapHolds) {
    for (const std::uint64_t stride :
         {std::uint64_t{1}, std::uint64_t{16}, std::uint64_t{4096}, std::uint64_t{1} << 16}) {
        auto random = random_stream(504 + stride);
        AddressIndex index(kBase);
        EXPECT_EQ(index.find(kBase), AddressIndex::kNone);
        std::map<std::uint64_t, std::uint32_t> model;
        for (int step = 0; step < 20000; ++step) {
            // Grows to a thousand entries and shrinks again.
            const bool grows = step / 2000 % 2 == 0;
            const std::uint64_t address = kBase + between(random, 0, 1500) * stride * kUnit;
            if (model.contains(address)) {
                if (!grows || between(random, 0, 2) == 0) {
                    index.erase(address);
                    model.erase(address);
                }
            } else if (grows || between(random, 0, 2) == 0) {
                ASSERT_TRUE(index.reserve());
                const auto value =
                    static_cast<std::uint32_t>(between(random, 0, AddressIndex::kMostValue));
                index.insert(address, value);
                model[address] = value;
            }
            if (step % 500 != 0) continue;
            for (std::uint64_t i = 0; i <= 1500; ++i) {
                const std::uint64_t at = kBase + i * stride * kUnit;
                const auto known = model.find(at);
                ASSERT_EQ(index.find(at),
                          known == model.end() ? AddressIndex::kNone : known->second);
                ASSERT_EQ(index.find(at + 1), AddressIndex::kNone);
            }
        }
    }
}

TEST(AddressIndex, ReachesFromTheFirstAddressToTheLastAndNoFurther) {
    AddressIndex index(kBase);
    const std::uint64_t last = kBase + AddressIndex::kReach - kUnit;
    ASSERT_TRUE(index.reserve());
    index.insert(kBase, 0);
    index.insert(last, AddressIndex::kMostValue);
    EXPECT_EQ(index.find(kBase), 0U);
    EXPECT_EQ(index.find(last), AddressIndex::kMostValue);
    EXPECT_EQ(index.find(last + kUnit), AddressIndex::kNone);
    EXPECT_EQ(index.find(kBase - kUnit), AddressIndex::kNone);
    EXPECT_EQ(index.find(0), AddressIndex::kNone);
    EXPECT_EQ(index.find(UINT64_MAX), AddressIndex::kNone);
}

TEST(AddressIndex, ReadersBesideAWriterSeeTheRightRecordsAndMissNoneForGood) {
    constexpr std::uint64_t kKept = 300;
    constexpr std::uint64_t kComing = 600;
    AddressIndex index(kBase);
    std::mutex mutex;  // the heap's
    const auto value_of = [](std::uint64_t i) { return static_cast<std::uint32_t>(i * 7 + 1); };
    for (std::uint64_t i = 0; i < kKept; ++i) {
        ASSERT_TRUE(index.reserve());
        index.insert(kBase + i * 2 * kUnit, value_of(i * 2));
    }
    std::atomic<bool> stop{false};
    std::atomic<int> wrong{0};
    std::vector<std::thread> readers;
    for (int r = 0; r < 2; ++r) {
        readers.emplace_back([&, r] {
            auto random = random_stream(505 + static_cast<std::uint64_t>(r));
            while (!stop) {
                const std::uint64_t i = between(random, 0, kKept * 2 - 1);
                std::uint32_t value = index.find(kBase + i * kUnit);
                if (value == AddressIndex::kNone && i % 2 == 0) {
                    const std::lock_guard lock(mutex);
                    value = index.find(kBase + i * kUnit);
                    if (value == AddressIndex::kNone) ++wrong;
                }
                if (value != AddressIndex::kNone && value != value_of(i)) ++wrong;
            }
        });
    }
    auto random = random_stream(507);
    std::vector<bool> in(kComing);
    for (int step = 0; step < 60000; ++step) {
        const std::uint64_t i = between(random, 0, kComing - 1);
        const std::uint64_t address = kBase + (i * 2 + 1) * kUnit;
        const std::lock_guard lock(mutex);
        if (in[i]) {
            index.erase(address);
        } else {
            ASSERT_TRUE(index.reserve());
            index.insert(address, value_of(i * 2 + 1));
        }
        in[i] = !in[i];
    }
    stop = true;
    for (std::thread& reader : readers) reader.join();
    EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace frostline
