// Proves where the engine finds room: stores wait while moves make some, pass what DRAM cannot hold
// to a lower tier, refuse what fits nowhere without leaving anything behind, and never hang.
#include "tests/migration/engine_rig.h"

#include <algorithm>

namespace frostline {
namespace {

class EngineRoom : public testing::Test {
   protected:
    Bytes some(std::uint64_t size_bytes) { return random_bytes(random_, size_bytes); }

    std::mt19937_64 random_ = random_stream(10);
};

TEST_F(EngineRoom, a_store_waits_until_a_move_has_made_room) {
    EngineRig rig({.dram_bytes = kMi, .pmem_bytes = 4 * kMi, .workers = false});
    const Bytes first = some(600 * kKi);
    const Bytes second = some(600 * kKi);
    const TensorId a = rig.stored(first);
    EXPECT_EQ(rig.copies().pending(), 0U);
    std::uint64_t steps = 0;
    const auto b = while_pumping([&] { return rig.engine().put(second); },
                                 [&] { steps += rig.step() ? 1 : 0; });
    ASSERT_TRUE(b.has_value()) << b.error().message();
    EXPECT_GE(steps, 600 * kKi / (64 * kKi)) << "nothing was waited for";
    EXPECT_EQ(rig.engine().stats().store_stalls, 1U);
    EXPECT_EQ(rig.engine().stats().moves, 1U);
    EXPECT_EQ(rig.used(0), 600 * kKi) << "the younger one is in DRAM";
    EXPECT_EQ(rig.used(1), 600 * kKi);
    EXPECT_EQ(rig.read(a, first.size()), first);
    EXPECT_EQ(rig.read(*b, second.size()), second);
}

TEST_F(EngineRoom, what_exceeds_dram_goes_to_the_first_lower_tier_that_takes_it) {
    EngineRig rig({.dram_bytes = kMi, .pmem_bytes = 2 * kMi, .swap_bytes = 8 * kMi});
    const Bytes to_pmem = some(kMi + 1);
    const Bytes to_swap = some(3 * kMi);
    const TensorId a = rig.stored(to_pmem);
    const TensorId b = rig.stored(to_swap);
    EXPECT_EQ(rig.used(0), 0U);
    EXPECT_EQ(rig.used(1), kMi + kPageBytes);
    EXPECT_EQ(rig.used(2), 3 * kMi);
    EXPECT_EQ(rig.read(a, to_pmem.size()), to_pmem);
    EXPECT_EQ(rig.read(b, to_swap.size()), to_swap);
    EXPECT_EQ(rig.engine().stats().direct_reads, 2U);
    const auto pinned = rig.pin(b);
    ASSERT_FALSE(pinned.has_value()) << "it cannot come to DRAM";
    EXPECT_EQ(pinned.error().code(), Errc::no_space);
}

TEST_F(EngineRoom, spare_copies_below_give_way_to_what_exceeds_dram) {
    EngineRig rig({.dram_bytes = kMi, .pmem_bytes = 2 * kMi, .swap_bytes = 0, .workers = false});
    const Bytes first = some(kMi);
    const TensorId a = rig.stored(first);
    rig.run_all_copies();
    rig.engine().unpin(*rig.pin(a));  // back from below, where its copy stays
    ASSERT_EQ(rig.used(0) + rig.used(1), 2 * kMi);
    EXPECT_EQ(rig.put(some(2 * kMi + 1)).error().code(), Errc::no_space);
    EXPECT_EQ(rig.used(1), kMi) << "the spare copy was given up in vain";
    const Bytes second = some(2 * kMi);
    const TensorId b = rig.stored(second);
    EXPECT_EQ(rig.read(a, kMi), first);
    EXPECT_EQ(rig.read(b, 2 * kMi), second);
}

TEST_F(EngineRoom, an_adopted_buffer_that_exceeds_dram_is_copied_and_given_back_at_once) {
    EngineRig rig({.dram_bytes = kMi, .pmem_bytes = 4 * kMi});
    LentBuffer buffer;
    buffer.bytes = some(2 * kMi);
    const Bytes contents = buffer.bytes;
    const auto id = rig.engine().adopt(buffer.bytes, buffer.release(), true);
    ASSERT_TRUE(id.has_value());
    EXPECT_EQ(buffer.released, 1);
    EXPECT_EQ(rig.read(*id, contents.size()), contents);
    ASSERT_TRUE(rig.engine().drop(*id).has_value());
    EXPECT_EQ(buffer.released, 1);
}

TEST_F(EngineRoom, what_exceeds_everything_is_refused_and_leaves_nothing) {
    EngineRig rig({.dram_bytes = kMi, .pmem_bytes = kMi, .swap_bytes = 2 * kMi});
    LentBuffer buffer;
    buffer.bytes = some(2 * kMi + 1);
    const auto put = rig.put(buffer.bytes);
    ASSERT_FALSE(put.has_value());
    EXPECT_EQ(put.error().code(), Errc::no_space);
    EXPECT_STREQ(put.error().message(),
                 "no room for 2097153 bytes in any tier; bytes used: dram 0 of 1048576, pmem 0 of "
                 "1048576, swap 0 of 2097152; drop or unpin tensors, or raise a budget");
    const auto adopted = rig.engine().adopt(buffer.bytes, buffer.release(), false);
    ASSERT_FALSE(adopted.has_value());
    EXPECT_EQ(adopted.error().code(), Errc::no_space);
    EXPECT_EQ(buffer.released, 0);
    for (std::size_t i = 0; i < rig.tiers(); ++i) EXPECT_EQ(rig.used(i), 0U);
    EXPECT_EQ(rig.engine().stats().stored, 0U);
}

TEST_F(EngineRoom, with_everything_pinned_stores_go_below_and_then_are_refused) {
    EngineRig rig({.dram_bytes = kMi, .pmem_bytes = kMi, .swap_bytes = 0});
    const Bytes bytes = some(512 * kKi);
    std::vector<PinnedBytes> pins;
    for (int i = 0; i < 2; ++i) {
        const auto pinned = rig.pin(rig.stored(bytes));
        ASSERT_TRUE(pinned.has_value());
        pins.push_back(*pinned);
    }
    LentBuffer buffer;
    buffer.bytes = bytes;
    const auto below = rig.put(bytes);
    const auto adopted =
        without_hanging([&] { return rig.engine().adopt(buffer.bytes, buffer.release(), false); });
    ASSERT_TRUE(below.has_value());
    ASSERT_TRUE(adopted.has_value()) << "pmem has room: " << adopted.error().message();
    EXPECT_EQ(buffer.released, 1) << "its bytes were copied";
    EXPECT_EQ(rig.used(1), kMi);
    const auto refused = rig.put(bytes);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code(), Errc::no_space);
    LentBuffer another;
    another.bytes = bytes;
    const auto refused_adoption = without_hanging(
        [&] { return rig.engine().adopt(another.bytes, another.release(), false); });
    ASSERT_FALSE(refused_adoption.has_value());
    EXPECT_EQ(refused_adoption.error().code(), Errc::no_space);
    EXPECT_EQ(another.released, 0);
    const auto pinned = rig.pin(*below);
    ASSERT_FALSE(pinned.has_value()) << "pins leave no room";
    EXPECT_EQ(pinned.error().code(), Errc::no_space);
    EXPECT_STREQ(pinned.error().message(),
                 "no room for 524288 bytes in the fastest tier; bytes used: dram 1048576 of "
                 "1048576, pmem 1048576 of 1048576; drop or unpin tensors, or raise a budget");
    const auto made = rig.engine().allocate(512 * kKi);
    ASSERT_FALSE(made.has_value());
    EXPECT_STREQ(made.error().message(), pinned.error().message());
    EXPECT_EQ(rig.engine().prefetch(*below).error().code(), Errc::no_space);
    EXPECT_EQ(rig.read(*below, bytes.size()), bytes) << "reading in place needs no room";
    for (const PinnedBytes& each : pins) rig.engine().unpin(each);
    const auto later = rig.put(bytes);
    EXPECT_FALSE(later.has_value()) << "both tiers are full";
    ASSERT_TRUE(rig.engine().drop(*below).has_value());
    EXPECT_TRUE(rig.put(bytes).has_value());
}

TEST_F(EngineRoom, a_held_buffer_stays_until_it_is_settled) {
    EngineRig rig({.dram_bytes = kMi, .pmem_bytes = 4 * kMi, .workers = false});
    LentBuffer buffer;
    buffer.bytes = some(kMi);
    const Bytes contents = buffer.bytes;
    const auto id = rig.engine().adopt(buffer.bytes, buffer.release(), true);
    ASSERT_TRUE(id.has_value());
    rig.run_all_copies();
    EXPECT_EQ(buffer.released, 0) << "its producer uses it";
    ASSERT_TRUE(rig.engine().settle(*id).has_value());
    ASSERT_TRUE(rig.engine().settle(*id).has_value()) << "once more does nothing";
    rig.run_all_copies();
    EXPECT_EQ(buffer.released, 1) << "settled, it leaves for the sake of the headroom";
    EXPECT_EQ(rig.used(0), 0U);
    EXPECT_EQ(rig.read(*id, contents.size()), contents);
    EXPECT_EQ(rig.engine().settle(TensorId{7, 7}).error().code(), Errc::not_found);
}

TEST_F(EngineRoom, no_dram_at_all_still_stores_and_reads) {
    EngineRig rig({.dram_bytes = 0, .pmem_bytes = kMi});
    const Bytes bytes = some(5000);
    const TensorId id = rig.stored(bytes);
    EXPECT_EQ(rig.read(id, bytes.size()), bytes);
    EXPECT_EQ(rig.pin(id).error().code(), Errc::no_space);
    EXPECT_EQ(rig.engine().prefetch(id).error().code(), Errc::no_space);
}

TEST_F(EngineRoom, evicting_again_what_came_back_unchanged_copies_nothing) {
    EngineRig rig({.dram_bytes = kMi, .pmem_bytes = 4 * kMi});
    const Bytes first = some(kMi);
    const Bytes second = some(kMi);
    const TensorId a = rig.stored(first);
    const TensorId b = rig.stored(second);
    for (const TensorId id : {a, b, a, b, a}) {
        const auto pinned = rig.pin(id);
        ASSERT_TRUE(pinned.has_value()) << pinned.error().message();
        const Bytes& expected = id == a ? first : second;
        EXPECT_TRUE(std::equal(expected.begin(), expected.end(), pinned->bytes.begin()));
        rig.engine().unpin(*pinned);
    }
    const EngineStats stats = rig.engine().stats();
    EXPECT_EQ(stats.moved_in_bytes[1], 2 * kMi) << "each went down once";
    EXPECT_GE(stats.free_moves, 3U);
}

TEST_F(EngineRoom, a_written_tensor_takes_the_room_of_its_void_copy_again) {
    EngineRig rig({.dram_bytes = kMi, .pmem_bytes = kMi, .swap_bytes = 0, .workers = false});
    const TensorId a = rig.stored(some(kMi));
    rig.run_all_copies();  // it left for the headroom
    ASSERT_EQ(rig.used(1), kMi);
    const auto pinned = rig.pin(a, Access::write);
    ASSERT_TRUE(pinned.has_value());
    const Bytes changed = some(kMi);
    std::copy(changed.begin(), changed.end(), pinned->bytes.begin());
    rig.engine().unpin(*pinned);
    ASSERT_EQ(rig.used(0) + rig.used(1), 2 * kMi) << "pmem is full of a copy that is void now";
    LentBuffer buffer;
    buffer.bytes = some(kMi);
    const auto b =
        rig.pumping([&] { return rig.engine().adopt(buffer.bytes, buffer.release(), false); });
    ASSERT_TRUE(b.has_value()) << b.error().message();
    EXPECT_EQ(buffer.released, 0) << "it is in DRAM, a in pmem";
    EXPECT_EQ(rig.read(a, kMi), changed) << "a write was lost";
    rig.stop();
}

TEST_F(EngineRoom, what_was_read_below_while_it_was_fetched_does_not_clog_dram) {
    EngineRig rig({.dram_bytes = kMi, .pmem_bytes = 0, .swap_bytes = 8 * kMi, .workers = false});
    const Bytes first = some(768 * kKi);
    const TensorId a = rig.stored(first);
    const Bytes second = some(768 * kKi);
    const TensorId b = rig.stored(second);
    rig.run_all_copies();
    ASSERT_TRUE(rig.engine().drop(b).has_value());
    ASSERT_EQ(rig.used(0), 0U);
    // The fetch of a runs to its end in the middle of a read of a, which pins it below.
    ASSERT_TRUE(rig.engine().prefetch(a).has_value());
    FaultInjection watch{Fault{}};
    bool inside = false;
    watch.after_every_call([&](Call call) {
        if (call != Call::pread || inside) return;
        inside = true;
        rig.run_all_copies();
    });
    EXPECT_EQ(rig.read(a, first.size()), first);
    EXPECT_EQ(rig.used(0), 0U) << "a copy that is not home fills DRAM";
    LentBuffer buffer;
    buffer.bytes = some(kMi);
    const auto c =
        rig.pumping([&] { return rig.engine().adopt(buffer.bytes, buffer.release(), true); });
    ASSERT_TRUE(c.has_value()) << c.error().message();
    EXPECT_EQ(buffer.released, 0) << "there was room for it after all";
    EXPECT_EQ(rig.read(a, first.size()), first);
    rig.stop();
}

// What is free may lie in pieces, so that the policy, which sees sums, chooses a tier in vain.
TEST_F(EngineRoom, the_next_tier_takes_what_the_chosen_one_has_no_room_for) {
    EngineRig rig({.dram_bytes = kMi, .pmem_bytes = 2 * kMi, .workers = false});
    std::vector<Extent> pieces;
    for (int i = 0; i < 8; ++i) pieces.push_back(*rig.tier(1).reserve(256 * kKi));
    for (std::size_t i = 0; i < pieces.size(); i += 2) rig.tier(1).release(pieces[i]);
    const Bytes bytes = some(512 * kKi);
    const TensorId a = rig.stored(bytes);
    LentBuffer buffer;
    buffer.bytes = some(768 * kKi);
    const auto b =
        rig.pumping([&] { return rig.engine().adopt(buffer.bytes, buffer.release(), true); });
    ASSERT_TRUE(b.has_value());
    EXPECT_EQ(buffer.released, 0) << "room was to be made for it in DRAM";
    EXPECT_EQ(rig.used(2), 512 * kKi);
    EXPECT_EQ(rig.read(a, bytes.size()), bytes);
    for (std::size_t i = 1; i < pieces.size(); i += 2) rig.tier(1).release(pieces[i]);
    rig.stop();
}

TEST_F(EngineRoom, a_pin_that_waits_for_a_reader_goes_on_after_it) {
    EngineRig rig({.dram_bytes = kMi, .pmem_bytes = 0, .workers = false});
    const Bytes bytes = some(kMi);
    const TensorId a = rig.stored(bytes);
    rig.run_all_copies();
    std::future<Result<PinnedBytes>> waits;
    {
        FaultInjection watch{Fault{}};
        watch.after_every_call([&](Call call) {
            if (call != Call::pread || waits.valid()) return;
            // In the middle of the read. The pin is waiting once it has looked at the clock and let
            // go of the lock again, which stats() needs.
            const std::uint64_t before = rig.clock_ns();
            waits =
                std::async(std::launch::async, [&] { return rig.engine().pin(a, Access::read); });
            while (rig.clock_ns() == before) std::this_thread::yield();
            (void)rig.engine().stats();
        });
        EXPECT_EQ(rig.read(a, bytes.size()), bytes);
    }
    const auto pinned = rig.pumping([&] { return waits.get(); });
    ASSERT_TRUE(pinned.has_value()) << pinned.error().message();
    rig.engine().unpin(*pinned);
}

TEST_F(EngineRoom, uses_fetch_what_was_born_before) {
    EngineRig rig({.dram_bytes = 2 * kMi, .pmem_bytes = 4 * kMi, .workers = false});
    std::vector<TensorId> ids;
    for (int i = 0; i < 4; ++i) ids.push_back(rig.stored(some(400 * kKi)));
    rig.run_all_copies();
    ASSERT_TRUE(rig.put(some(2 * kMi)).has_value());
    rig.run_all_copies();
    EXPECT_EQ(rig.used(0), 0U);
    std::reverse(ids.begin(), ids.end());
    for (const TensorId id : ids) {
        const auto pinned = rig.pin(id);
        ASSERT_TRUE(pinned.has_value());
        rig.engine().unpin(*pinned);
        rig.run_all_copies();
    }
    EXPECT_EQ(rig.engine().stats().use_stalls, 1U) << "only the first had to be waited for";
    EXPECT_EQ(rig.engine().stats().hits, 3U);
}

}  // namespace
}  // namespace frostline
