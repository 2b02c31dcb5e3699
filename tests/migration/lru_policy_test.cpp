// Proves that LruPolicy is a pure function that evicts the least recently used to the fastest tier
// with room, gives up spare copies only where that helps, and never names what may not move.
#include "migration/policies/lru_policy.h"

#include "tests/migration/policy_stage.h"
#include "tests/tiers/seed.h"

#include <gmock/gmock.h>

namespace frostline {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const LruPolicy& lru() {
    static const LruPolicy policy;
    return policy;
}

// DRAM of 80 bytes keeps 10 of them free by itself.
PolicyStage three_tiers(std::uint64_t dram = 80, std::uint64_t pmem = 1000,
                        std::uint64_t swap = 1000) {
    return PolicyStage({{TierKind::dram, dram}, {TierKind::pmem, pmem}, {TierKind::swap, swap}});
}

TEST(LruPolicy, evicts_in_the_order_of_last_use) {
    PolicyStage stage = three_tiers();
    TensorRecord& a = stage.tensor(20, 0);
    TensorRecord& b = stage.tensor(20, 0);
    TensorRecord& c = stage.tensor(20, 0);
    TensorRecord& d = stage.tensor(20, 0);
    stage.table.touch(a);  // now the order of use is b, c, d, a
    EXPECT_THAT(stage.pressure(lru(), 20), ElementsAre(move_of(b, 1), move_of(c, 1)));
    EXPECT_THAT(stage.pressure(lru(), 60),
                ElementsAre(move_of(b, 1), move_of(c, 1), move_of(d, 1), move_of(a, 1)));
}

TEST(LruPolicy, keeps_an_eighth_free_and_no_more) {
    PolicyStage stage = three_tiers();
    TensorRecord& a = stage.tensor(10, 0);
    TensorRecord& b = stage.tensor(60, 0);
    EXPECT_THAT(stage.settled(lru(), b), IsEmpty()) << "10 of 80 bytes are free";
    stage.tensor(1, 0);
    EXPECT_THAT(stage.settled(lru(), b), ElementsAre(move_of(a, 1)));
}

TEST(LruPolicy, counts_what_is_leaving_already) {
    PolicyStage stage({{TierKind::dram, 80, true, 30}, {TierKind::pmem, 1000}});
    TensorRecord& leaving = stage.tensor(30, 0);
    TensorRecord& stays = stage.tensor(50, 0);
    ASSERT_TRUE(leaving.residency.begin_move(TierId{1}));
    EXPECT_THAT(stage.pressure(lru(), 20), IsEmpty());
    EXPECT_THAT(stage.pressure(lru(), 21), ElementsAre(move_of(stays, 1)));
}

TEST(LruPolicy, takes_the_fastest_lower_tier_with_room) {
    PolicyStage stage = three_tiers(80, 50);
    TensorRecord& a = stage.tensor(30, 0);
    TensorRecord& b = stage.tensor(30, 0);
    TensorRecord& c = stage.tensor(20, 0);
    // After a only 20 bytes of pmem are left: b passes on to swap, c still fits.
    EXPECT_THAT(stage.pressure(lru(), 70),
                ElementsAre(move_of(a, 1), move_of(b, 2), move_of(c, 1)));
}

TierSpeed reads_at(std::uint64_t bytes_per_s, std::uint64_t latency_ns = 0) {
    return {.read_bytes_per_s = bytes_per_s, .read_latency_ns = latency_ns};
}

// Where a tensor goes from a DRAM of 80 bytes to tiers of these speeds.
Decision evicted_to(std::initializer_list<TierSpeed> speeds, std::uint64_t size_bytes = 80) {
    const auto tier = [&](std::size_t i) {
        return StageTier{TierKind::swap, 1000, true, 0, speeds.begin()[i]};
    };
    PolicyStage stage({{TierKind::dram, 80}, tier(0), tier(1), tier(2)});
    stage.tensor(size_bytes, 0);
    const auto decisions = stage.pressure(lru(), 80);
    EXPECT_EQ(decisions.size(), 1U);
    return decisions.empty() ? Decision{} : decisions[0];
}

TEST(LruPolicy, prefers_the_tier_that_brings_the_bytes_back_soonest) {
    EXPECT_EQ(evicted_to({reads_at(1000), reads_at(5000), reads_at(2000)}).tier, TierId{2});
    EXPECT_EQ(evicted_to({reads_at(1000), reads_at(2000), reads_at(9000)}).tier, TierId{3});
    EXPECT_EQ(evicted_to({reads_at(9000), reads_at(2000), reads_at(1000)}).tier, TierId{1});
}

TEST(LruPolicy, weighs_latency_by_the_size) {
    const std::initializer_list<TierSpeed> speeds{
        reads_at(1'000'000'000, 10), reads_at(8'000'000'000, 60), reads_at(1'000'000, 1)};
    EXPECT_EQ(evicted_to(speeds, 80).tier, TierId{2}) << "10 + 80 ns against 60 + 10";
    EXPECT_EQ(evicted_to(speeds, 40).tier, TierId{1}) << "10 + 40 ns against 60 + 5";
}

TEST(LruPolicy, keeps_the_order_of_the_tiers_where_speeds_are_unknown_or_alike) {
    EXPECT_EQ(evicted_to({{}, {}, {}}).tier, TierId{1});
    EXPECT_EQ(evicted_to({{}, reads_at(9000), {}}).tier, TierId{1});
    EXPECT_EQ(evicted_to({reads_at(1000), {}, {}}).tier, TierId{1});
    EXPECT_EQ(evicted_to({reads_at(1000), reads_at(1090), reads_at(1100)}).tier, TierId{1});
    EXPECT_EQ(evicted_to({reads_at(1000), reads_at(1120), reads_at(1150)}).tier, TierId{2});
    EXPECT_EQ(evicted_to({reads_at(1000), {}, reads_at(2000)}).tier, TierId{3});
}

TEST(LruPolicy, a_faster_tier_that_is_full_is_no_choice) {
    PolicyStage stage({{TierKind::dram, 80},
                       {TierKind::pmem, 1000, true, 0, reads_at(1000)},
                       {TierKind::swap, 50, true, 0, reads_at(9000)}});
    TensorRecord& a = stage.tensor(40, 0);
    TensorRecord& b = stage.tensor(40, 0);
    EXPECT_THAT(stage.pressure(lru(), 80), ElementsAre(move_of(a, 2), move_of(b, 1)));
}

TEST(LruPolicy, skips_closed_tiers) {
    PolicyStage stage({{TierKind::dram, 80}, {TierKind::pmem, 1000, false}, {TierKind::swap, 99}});
    TensorRecord& a = stage.tensor(80, 0);
    EXPECT_THAT(stage.pressure(lru(), 8), ElementsAre(move_of(a, 2)));
    PolicyStage closed({{TierKind::dram, 80}, {TierKind::pmem, 1000, false}});
    closed.tensor(80, 0);
    EXPECT_THAT(closed.pressure(lru(), 8), IsEmpty());
}

TEST(LruPolicy, goes_where_a_good_copy_lies_even_if_that_is_slower_or_full) {
    PolicyStage stage = three_tiers(80, 1000, 40);
    TensorRecord& a = stage.tensor(40, 0, {2});
    stage.tensor(40, 0);
    EXPECT_THAT(stage.pressure(lru(), 8), ElementsAre(move_of(a, 2)));
}

TEST(LruPolicy, a_copy_that_a_write_made_void_draws_nobody_to_a_closed_tier) {
    PolicyStage stage({{TierKind::dram, 80}, {TierKind::pmem, 1000}, {TierKind::swap, 99, false}});
    TensorRecord& a = stage.tensor(80, 0, {2});
    ASSERT_EQ(a.residency.pin(a.id().generation, Access::write), Residency::PinResult::pinned);
    ASSERT_FALSE(a.residency.unpin());
    EXPECT_THAT(stage.pressure(lru(), 8), ElementsAre(move_of(a, 1)));
}

TEST(LruPolicy, gives_up_spare_copies_only_when_nothing_else_helps) {
    PolicyStage stage({{TierKind::dram, 80}, {TierKind::pmem, 30}});
    TensorRecord& a = stage.tensor(20, 0);
    TensorRecord& older = stage.tensor(15, 0, {1});
    TensorRecord& newer = stage.tensor(15, 0, {1});
    EXPECT_EQ(older.copies[1]->extent.length_bytes, 15U);
    // 30 bytes are free and 10 of them count as headroom: 1 more is wanted. Both spares must go for
    // a's sake, the most recently used first, because it will be evicted last.
    EXPECT_THAT(stage.pressure(lru(), 25),
                ElementsAre(drop_of(newer, 1), drop_of(older, 1), move_of(a, 1)));
    PolicyStage roomy = three_tiers(80, 30);
    TensorRecord& b = roomy.tensor(20, 0);
    roomy.tensor(15, 0, {1});
    roomy.tensor(15, 0, {1});
    EXPECT_THAT(roomy.pressure(lru(), 25), ElementsAre(move_of(b, 2))) << "swap had room";
}

TEST(LruPolicy, gives_up_no_spare_copy_in_vain) {
    PolicyStage stage({{TierKind::dram, 80}, {TierKind::pmem, 30}});
    stage.tensor(15, 1);  // at home there: it stays
    stage.tensor(40, 0);
    TensorRecord& spare = stage.tensor(15, 0, {1});
    // Dropping the spare copy would free 15 of the 40 bytes that the oldest needs.
    EXPECT_THAT(stage.pressure(lru(), 30), ElementsAre(move_of(spare, 1)));
}

TEST(LruPolicy, gives_up_no_spare_copy_twice) {
    PolicyStage stage({{TierKind::dram, 80}, {TierKind::pmem, 20}});
    TensorRecord& a = stage.tensor(20, 0);
    stage.tensor(20, 0);
    TensorRecord& spare = stage.tensor(20, 0, {1});
    // One spare copy makes room for one tensor; and spare's own eviction is free no longer.
    EXPECT_THAT(stage.pressure(lru(), 60), ElementsAre(drop_of(spare, 1), move_of(a, 1)));
}

TEST(LruPolicy, never_names_pinned_moving_or_released_tensors) {
    PolicyStage stage = three_tiers();
    TensorRecord& pinned = stage.tensor(20, 0);
    TensorRecord& moving = stage.tensor(20, 0);
    TensorRecord& released = stage.tensor(20, 0);
    TensorRecord& movable = stage.tensor(20, 0);
    ASSERT_EQ(pinned.residency.pin(pinned.id().generation, Access::read),
              Residency::PinResult::pinned);
    ASSERT_TRUE(moving.residency.begin_move(TierId{1}));
    ASSERT_EQ(released.residency.release(), Residency::ReleaseResult::retire);
    EXPECT_THAT(stage.pressure(lru(), 80), ElementsAre(move_of(movable, 1)));
}

TEST(LruPolicy, counts_on_no_copy_of_moving_or_released_tensors) {
    PolicyStage stage({{TierKind::dram, 80}, {TierKind::pmem, 40}});
    TensorRecord& moving = stage.tensor(20, 0, {1});
    TensorRecord& released = stage.tensor(20, 0, {1});
    stage.tensor(20, 0);
    ASSERT_TRUE(moving.residency.begin_move(TierId{1}));
    ASSERT_EQ(released.residency.release(), Residency::ReleaseResult::retire);
    EXPECT_THAT(stage.pressure(lru(), 40), IsEmpty());
}

TEST(LruPolicy, fetches_in_the_reverse_order_of_births) {
    PolicyStage stage = three_tiers(200);
    TensorRecord& a = stage.tensor(10, 1);
    TensorRecord& b = stage.tensor(10, 2);
    TensorRecord& c = stage.tensor(10, 1);
    TensorRecord& used = stage.tensor(10, 0);
    stage.tensor(10, 1);   // younger: its backward pass is over
    stage.table.touch(a);  // the order of uses has no say
    EXPECT_THAT(stage.used(lru(), used), ElementsAre(move_of(c, 0), move_of(b, 0), move_of(a, 0)));
}

TEST(LruPolicy, fetches_within_the_window) {
    PolicyStage stage = three_tiers(200);
    stage.tensor(10, 1);
    TensorRecord& b = stage.tensor(10, 1);
    TensorRecord& resident = stage.tensor(10, 0);  // counts, because it is used first
    TensorRecord& used = stage.tensor(10, 0);
    EXPECT_THAT(stage.used(lru(), used, 20), ElementsAre(move_of(b, 0)));
    EXPECT_THAT(stage.used(lru(), used, 10), IsEmpty());
    EXPECT_THAT(stage.used(lru(), used, 0), IsEmpty());
    EXPECT_THAT(stage.used(lru(), resident, 10), ElementsAre(move_of(b, 0)));
}

TEST(LruPolicy, fetches_within_free_room_and_evicts_for_no_prefetch) {
    PolicyStage stage = three_tiers(100);
    stage.tensor(30, 1);
    stage.tensor(30, 1);
    TensorRecord& c = stage.tensor(30, 1);
    TensorRecord& used = stage.tensor(50, 0);
    EXPECT_THAT(stage.used(lru(), used), ElementsAre(move_of(c, 0))) << "50 bytes were free";
    stage.tensor(50, 0);
    EXPECT_THAT(stage.used(lru(), used), IsEmpty()) << "DRAM is full";
}

TEST(LruPolicy, fetches_nothing_that_moves_or_is_gone) {
    PolicyStage stage = three_tiers(200);
    TensorRecord& a = stage.tensor(10, 1);
    TensorRecord& moving = stage.tensor(10, 1);
    TensorRecord& released = stage.tensor(10, 1);
    TensorRecord& used = stage.tensor(10, 0);
    ASSERT_TRUE(moving.residency.begin_move(TierId{0}));
    ASSERT_EQ(released.residency.release(), Residency::ReleaseResult::retire);
    // What is gone takes no part of the window; what is on its way does.
    EXPECT_THAT(stage.used(lru(), used, 11), ElementsAre(move_of(a, 0)));
    EXPECT_THAT(stage.used(lru(), used, 10), IsEmpty());
}

TEST(LruPolicy, bears_empty_and_single_tiers) {
    PolicyStage none({{TierKind::dram, 0}, {TierKind::swap, 100}});
    TensorRecord& below = none.tensor(10, 1);
    EXPECT_THAT(none.pressure(lru(), 10), IsEmpty());
    EXPECT_THAT(none.settled(lru(), below), IsEmpty());
    EXPECT_THAT(none.used(lru(), below), IsEmpty());
    PolicyStage alone({{TierKind::dram, 80}});
    TensorRecord& only = alone.tensor(80, 0);
    EXPECT_THAT(alone.pressure(lru(), 10), IsEmpty()) << "there is nowhere to go";
    EXPECT_THAT(alone.used(lru(), only), IsEmpty());
}

TEST(LruPolicy, leaves_what_fits_nowhere_and_evicts_the_rest) {
    PolicyStage stage = three_tiers(200, 50, 60);
    stage.tensor(100, 0);
    TensorRecord& b = stage.tensor(60, 0);
    TensorRecord& c = stage.tensor(40, 0);
    EXPECT_THAT(stage.pressure(lru(), 5000), ElementsAre(move_of(b, 2), move_of(c, 1)));
}

TEST(LruPolicy, same_view_same_decisions) {
    std::mt19937_64 random = random_stream(1);
    for (int round = 0; round < 200; ++round) {
        PolicyStage stage = three_tiers(480 + between(random, 0, 200), 600, 600);
        std::vector<TensorRecord*> all;
        for (int i = 0; i < 30; ++i) {
            const auto home = static_cast<std::uint8_t>(between(random, 0, 2));
            const auto spare = static_cast<std::uint8_t>(between(random, 0, 2));
            const std::uint64_t size = between(random, 1, 16);
            all.push_back(spare == home ? &stage.tensor(size, home)
                                        : &stage.tensor(size, home, {spare}));
        }
        const std::uint64_t wanted = between(random, 0, 600);
        EXPECT_EQ(stage.pressure(lru(), wanted), stage.pressure(lru(), wanted));
        EXPECT_EQ(stage.used(lru(), *all[3]), stage.used(lru(), *all[3]));
        EXPECT_EQ(stage.settled(lru(), *all[3]), stage.settled(lru(), *all[3]));
    }
}

}  // namespace
}  // namespace frostline
