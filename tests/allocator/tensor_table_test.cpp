// Proves that the tensor table finds the living tensor of an id and never another, keeps records
// where they are, and keeps both orders, against a plain list of what lives.
#include "allocator/tensor_table.h"
#include "tests/tiers/seed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <set>
#include <vector>

namespace frostline {
namespace {

constexpr TierId kFastest{0};
constexpr TierId kPmem{1};

TensorRecord& make(TensorTable& table, std::uint64_t size_bytes = 4096, TierId home = kFastest) {
    const auto record = table.create(size_bytes, {{home, 8 * size_bytes, size_bytes}, size_bytes});
    if (!record) std::abort();
    return **record;
}

void drop(TensorTable& table, TensorRecord& record) {
    ASSERT_EQ(record.residency.release(), Residency::ReleaseResult::retire);
    table.erase(record);
}

void move_home(TensorTable& table, TensorRecord& record, TierId to) {
    ASSERT_TRUE(record.residency.begin_move(to));
    ASSERT_EQ(record.residency.publish(), Residency::PublishResult::published);
    table.touch(record);
}

template <class Order>
std::vector<TensorId> ids(const Order& order) {
    std::vector<TensorId> ids;
    for (const TensorRecord& each : order) ids.push_back(each.id());
    return ids;
}

TEST(TensorId, IsOneNumberAndBack) {
    constexpr TensorId kId{0x12345678, 0x9abcdef0};
    static_assert(kId.packed() == 0x9abcdef012345678);
    static_assert(TensorId::from_packed(kId.packed()) == kId);
    static_assert(!TensorId{}.valid() && !TensorId{5, 0}.valid() && kId.valid());
    EXPECT_NE(kId, (TensorId{kId.slot, kId.generation + 1}));
}

TEST(TensorTable, ANewTensorIsWhatWasAskedFor) {
    TensorTable table;
    TensorRecord& record = make(table, 12345, kPmem);
    EXPECT_TRUE(record.id().valid());
    EXPECT_EQ(record.size_bytes, 12345U);
    EXPECT_EQ(record.held_pins, 0U);
    EXPECT_EQ(record.residency.load().home, kPmem);
    ASSERT_NE(record.copy_in(kPmem), nullptr);
    EXPECT_EQ(record.copy_in(kPmem)->extent, (Extent{kPmem, 8 * 12345, 12345}));
    EXPECT_EQ(record.copy_in(kPmem)->checksum, 12345U);
    EXPECT_EQ(record.copy_in(kFastest), nullptr);
    EXPECT_EQ(table.find(record.id()), &record);
    EXPECT_EQ(table.size(), 1U);
}

TEST(TensorTable, AReusedSlotRemembersNothing) {
    TensorTable table;
    TensorRecord& first = make(table);
    const TensorId stale = first.id();
    first.held_pins = 3;
    first.copies[5] = TensorCopy{};
    ASSERT_EQ(first.residency.pin(stale.generation, Access::write), Residency::PinResult::pinned);
    ASSERT_FALSE(first.residency.unpin());
    drop(table, first);
    EXPECT_EQ(table.find(stale), nullptr);
    EXPECT_EQ(table.size(), 0U);
    TensorRecord& second = make(table, 777);
    ASSERT_EQ(&second, &first) << "the slot was not reused";
    EXPECT_EQ(second.slot, stale.slot);
    EXPECT_NE(second.id(), stale);
    EXPECT_EQ(second.held_pins, 0U);
    EXPECT_EQ(second.copy_in(TierId{5}), nullptr);
    EXPECT_FALSE(second.residency.load().written);
    EXPECT_EQ(table.find(stale), nullptr) << "a stale id means somebody else's tensor";
    EXPECT_EQ(table.find(second.id()), &second);
}

TEST(TensorTable, AReleasedTensorIsGoneBeforeItIsRetired) {
    TensorTable table;
    TensorRecord& record = make(table);
    const TensorId id = record.id();
    ASSERT_EQ(record.residency.pin(id.generation, Access::read), Residency::PinResult::pinned);
    ASSERT_EQ(record.residency.release(), Residency::ReleaseResult::retired_later);
    EXPECT_EQ(table.find(id), nullptr);
    TensorRecord& other = make(table);
    EXPECT_NE(&other, &record) << "the slot of a pinned tensor was reused";
    ASSERT_TRUE(record.residency.unpin());
    table.erase(record);
    EXPECT_EQ(table.size(), 1U);
}

TEST(TensorTable, IdsThatNeverWereAreNotFound) {
    TensorTable table;
    EXPECT_EQ(table.find({}), nullptr);
    EXPECT_EQ(table.find({0, 1}), nullptr);
    const TensorId id = make(table).id();
    for (const TensorId each :
         {TensorId{}, TensorId{id.slot, 0}, TensorId{id.slot, id.generation + 1},
          TensorId{id.slot + 1, id.generation}, TensorId{id.slot + 1, 0},
          TensorId{1U << 20, id.generation}, TensorId{UINT32_MAX, UINT32_MAX}}) {
        EXPECT_EQ(table.find(each), nullptr) << each.slot << " " << each.generation;
    }
}

TEST(TensorTable, TheGenerationWrapsPastZero) {
    TensorTable table;
    TensorRecord& record = make(table);
    drop(table, record);
    record.residency.reset(kFastest, UINT32_MAX - 1);
    (void)record.residency.release();
    std::vector<std::uint32_t> generations;
    for (int i = 0; i < 3; ++i) {
        TensorRecord& next = make(table);
        ASSERT_EQ(&next, &record);
        generations.push_back(next.id().generation);
        EXPECT_EQ(table.find(next.id()), &next);
        drop(table, next);
    }
    EXPECT_EQ(generations, (std::vector<std::uint32_t>{UINT32_MAX, 1, 2}));
}

TEST(TensorTable, TouchMovesToTheEndOfTheOrderOfUsesOnly) {
    TensorTable table;
    TensorRecord& a = make(table);
    TensorRecord& b = make(table);
    TensorRecord& c = make(table);
    table.touch(a);
    EXPECT_EQ(ids(table.by_use()), (std::vector{b.id(), c.id(), a.id()}));
    table.touch(a);
    EXPECT_EQ(ids(table.by_use()), (std::vector{b.id(), c.id(), a.id()}));
    table.touch(c);
    EXPECT_EQ(ids(table.by_use()), (std::vector{b.id(), a.id(), c.id()}));
    EXPECT_EQ(ids(table.by_birth()), (std::vector{a.id(), b.id(), c.id()}));
    drop(table, a);
    EXPECT_EQ(ids(table.by_use()), (std::vector{b.id(), c.id()}));
    EXPECT_EQ(ids(table.by_birth()), (std::vector{b.id(), c.id()}));
}

TEST(TensorTable, TheOrderOfUsesHoldsThoseOfTheFastestTierOnly) {
    TensorTable table;
    TensorRecord& a = make(table);
    TensorRecord& cold = make(table, 1, kPmem);
    TensorRecord& b = make(table);
    EXPECT_EQ(ids(table.by_use()), (std::vector{a.id(), b.id()}));
    table.touch(cold);
    EXPECT_EQ(ids(table.by_use()), (std::vector{a.id(), b.id()}));
    move_home(table, cold, kFastest);
    EXPECT_EQ(ids(table.by_use()), (std::vector{a.id(), b.id(), cold.id()}));
    move_home(table, a, kPmem);
    EXPECT_EQ(ids(table.by_use()), (std::vector{b.id(), cold.id()}));
    EXPECT_EQ(table.by_birth().size(), 3U);
    drop(table, a);
    drop(table, b);
    drop(table, cold);
    EXPECT_TRUE(table.by_use().empty());
    EXPECT_TRUE(table.by_birth().empty());
}

// What lives, in plain lists.
struct Expected {
    TensorRecord* record;
    TensorId id;
    std::uint64_t size_bytes;
};

TEST(TensorTable, AgreesWithPlainListsUnderRandomUse) {
    auto random = random_stream(400);
    TensorTable table;
    std::vector<Expected> by_birth;
    std::list<TensorId> by_use;
    std::vector<TensorId> stale;
    std::set<TensorId> ever;
    for (int step = 0; step < 20000; ++step) {
        const std::uint64_t choice = between(random, 0, 99);
        if (choice < 40 || by_birth.empty()) {
            const TierId home = between(random, 0, 3) == 0 ? kPmem : kFastest;
            TensorRecord& record = make(table, between(random, 1, 1U << 30), home);
            ASSERT_TRUE(ever.insert(record.id()).second) << "an id was used twice";
            by_birth.push_back({&record, record.id(), record.size_bytes});
            if (home == kFastest) by_use.push_back(record.id());
        } else {
            const std::size_t index = between(random, 0, by_birth.size() - 1);
            const auto [record, id, size] = by_birth[index];
            by_use.remove(id);
            if (choice < 62 || (by_birth.size() > 300 && choice < 85)) {
                drop(table, *record);
                stale.push_back(id);
                by_birth.erase(by_birth.begin() + static_cast<long>(index));
            } else {
                const TierId home = record->residency.load().home;
                if (choice < 85) {
                    table.touch(*record);
                    if (home == kFastest) by_use.push_back(id);
                } else {
                    move_home(table, *record, home == kFastest ? kPmem : kFastest);
                    if (home != kFastest) by_use.push_back(id);
                }
            }
        }
        ASSERT_EQ(table.size(), by_birth.size());
        if (!stale.empty()) {
            ASSERT_EQ(table.find(stale[between(random, 0, stale.size() - 1)]), nullptr);
        }
        if (step % 500 == 0) {
            std::vector<TensorId> births;
            for (const Expected& each : by_birth) {
                births.push_back(each.id);
                ASSERT_EQ(table.find(each.id), each.record);
                ASSERT_EQ(each.record->size_bytes, each.size_bytes);
            }
            ASSERT_EQ(ids(table.by_birth()), births);
            ASSERT_EQ(ids(table.by_use()), std::vector<TensorId>(by_use.begin(), by_use.end()));
        }
    }
}

TEST(TensorTable, RecordsOfManyTensorsStayWhereTheyAre) {
    constexpr std::size_t kTensors = 200'000;
    auto random = random_stream(401);
    TensorTable table;
    std::vector<std::pair<TensorId, TensorRecord*>> tensors;
    for (std::size_t i = 0; i < kTensors; ++i) {
        TensorRecord& record = make(table, i + 1);
        tensors.emplace_back(record.id(), &record);
    }
    EXPECT_EQ(table.size(), kTensors);
    std::set<TensorRecord*> addresses;
    for (std::size_t i = 0; i < kTensors; ++i) {
        ASSERT_EQ(table.find(tensors[i].first), tensors[i].second);
        ASSERT_EQ(tensors[i].second->size_bytes, i + 1);
        addresses.insert(tensors[i].second);
    }
    EXPECT_EQ(addresses.size(), kTensors);
    std::shuffle(tensors.begin(), tensors.end(), random);
    for (const auto& [id, record] : tensors) drop(table, *record);
    for (const auto& [id, record] : tensors) ASSERT_EQ(table.find(id), nullptr);
    for (std::size_t i = 0; i < kTensors; ++i) {
        ASSERT_TRUE(addresses.contains(&make(table))) << "a free slot was not reused";
    }
}

TEST(TensorTableDeathTest, ErasingALivingTensorEndsTheProgramAtTheLatestWhenItsSlotIsReused) {
    testing::GTEST_FLAG(death_test_style) = "threadsafe";
    EXPECT_DEATH(
        {
            TensorTable table;
            TensorRecord& record = make(table);
            table.erase(record);
            make(table);
        },
        "in use");
}

}  // namespace
}  // namespace frostline
