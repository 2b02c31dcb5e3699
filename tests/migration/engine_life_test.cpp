// Proves the life of tensors and of the engine: stale names are recognised, pins outlive drops,
// stopping is complete, and bad input is an error that changes nothing.
#include "tests/migration/engine_rig.h"

#include <algorithm>

namespace frostline {
namespace {

class EngineLife : public testing::Test {
   protected:
    Bytes some(std::uint64_t size_bytes) { return random_bytes(random_, size_bytes); }

    std::mt19937_64 random_ = random_stream(20);
};

TEST_F(EngineLife, bad_input_is_refused) {
    EngineRig rig({});
    EXPECT_EQ(rig.put({}).error().code(), Errc::invalid_argument);
    LentBuffer buffer;
    EXPECT_EQ(rig.engine().adopt(buffer.bytes, buffer.release(), false).error().code(),
              Errc::invalid_argument);
    for (const std::uint64_t size : {std::uint64_t{100}, 5 * kMi}) {
        buffer.bytes = some(size);
        EXPECT_EQ(rig.engine().adopt(buffer.bytes, BufferRelease{}, false).error().code(),
                  Errc::invalid_argument)
            << size << " bytes that nobody would get back";
    }
    buffer.bytes = some(100);
    const auto once = rig.engine().adopt(buffer.bytes, buffer.release(), false);
    ASSERT_TRUE(once.has_value());
    EXPECT_EQ(rig.engine().adopt(buffer.bytes, buffer.release(), false).error().code(), Errc::busy);
    EXPECT_EQ(buffer.released, 0);
    Bytes small(99);
    EXPECT_EQ(rig.engine().read(*once, small).error().code(), Errc::invalid_argument);
    rig.stop();
}

TEST_F(EngineLife, stale_names_are_recognised) {
    EngineRig rig({});
    const TensorId old = rig.stored(some(10));
    ASSERT_TRUE(rig.engine().drop(old).has_value());
    const TensorId young = rig.stored(some(10));
    EXPECT_EQ(young.slot, old.slot) << "the slot was to be reused";
    Bytes out(10);
    for (const TensorId id : {old, TensorId{}, TensorId{young.slot, 0}, TensorId{99999, 1}}) {
        EXPECT_EQ(rig.pin(id).error().code(), Errc::not_found);
        EXPECT_EQ(rig.engine().read(id, out).error().code(), Errc::not_found);
        EXPECT_EQ(rig.engine().prefetch(id).error().code(), Errc::not_found);
        EXPECT_EQ(rig.engine().size_bytes(id).error().code(), Errc::not_found);
        EXPECT_EQ(rig.engine().settle(id).error().code(), Errc::not_found);
        EXPECT_EQ(rig.engine().drop(id).error().code(), Errc::not_found);
    }
    EXPECT_EQ(*rig.engine().size_bytes(young), 10U);
    EXPECT_EQ(rig.engine().stats().dropped, 1U);
}

TEST_F(EngineLife, a_pin_outlives_the_drop) {
    EngineRig rig({});
    const Bytes bytes = some(kMi);
    LentBuffer buffer;
    buffer.bytes = bytes;
    const auto id = rig.engine().adopt(buffer.bytes, buffer.release(), false);
    ASSERT_TRUE(id.has_value());
    const auto one = rig.pin(*id);
    const auto two = rig.pin(*id);
    ASSERT_TRUE(one.has_value() && two.has_value());
    ASSERT_TRUE(rig.engine().drop(*id).has_value());
    EXPECT_EQ(rig.pin(*id).error().code(), Errc::not_found);
    EXPECT_EQ(rig.engine().pins(), 2U) << "dropped, but still pinned";
    rig.engine().unpin(*one);
    EXPECT_EQ(buffer.released, 0);
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), two->bytes.begin()));
    rig.engine().unpin(*two);
    EXPECT_EQ(buffer.released, 1);
    EXPECT_EQ(rig.used(0), 0U);
    EXPECT_EQ(rig.engine().pins(), 0U);
}

TEST_F(EngineLife, a_drop_ends_the_move) {
    EngineRig rig({.dram_bytes = kMi, .pmem_bytes = 2 * kMi, .workers = false});
    const TensorId id = rig.stored(some(kMi));
    ASSERT_EQ(rig.copies().pending(), 1U) << "it leaves for the headroom";
    ASSERT_TRUE(rig.step());
    ASSERT_TRUE(rig.engine().drop(id).has_value());
    ASSERT_TRUE(rig.step());
    EXPECT_FALSE(rig.step()) << "the copy stopped at its next chunk";
    EXPECT_EQ(rig.used(0) + rig.used(1), 0U);
}

TEST_F(EngineLife, a_drop_in_the_middle_of_a_read_frees_the_tensor_after_it) {
    EngineRig rig({.dram_bytes = kMi, .pmem_bytes = 0, .swap_bytes = 8 * kMi});
    const Bytes bytes = some(2 * kMi);
    const TensorId id = rig.stored(bytes);
    FaultInjection watch{Fault{}};
    bool dropped = false;
    watch.after_every_call([&](Call call) {
        if (call != Call::pread) return;
        if (!dropped) {
            EXPECT_TRUE(rig.engine().drop(id).has_value());
        }
        dropped = true;
        EXPECT_EQ(rig.used(1), 2 * kMi) << "it is being read";
    });
    EXPECT_EQ(rig.read(id, bytes.size()), bytes);
    EXPECT_EQ(rig.used(1), 0U);
}

TEST_F(EngineLife, a_write_in_the_middle_of_a_move_is_not_lost) {
    EngineRig rig({.dram_bytes = kMi, .pmem_bytes = 2 * kMi, .workers = false});
    const TensorId id = rig.stored(some(kMi));
    ASSERT_TRUE(rig.step());
    const auto pinned = rig.engine().pin(id, Access::write);
    ASSERT_TRUE(pinned.has_value());
    const Bytes changed = some(kMi);
    std::copy(changed.begin(), changed.end(), pinned->bytes.begin());
    rig.engine().unpin(*pinned);
    rig.run_all_copies();
    EXPECT_EQ(rig.used(0), kMi);
    EXPECT_EQ(rig.used(1), 0U) << "a copy of half-written bytes is of no use";
    EXPECT_EQ(rig.read(id, kMi), changed);
}

TEST_F(EngineLife, pins_outlive_stopping) {
    EngineRig rig({});
    const Bytes bytes = some(1000);
    const TensorId id = rig.stored(bytes);
    const auto pinned = rig.pin(id);
    ASSERT_TRUE(pinned.has_value());
    LentBuffer held;
    held.bytes = bytes;
    ASSERT_TRUE(rig.engine().adopt(held.bytes, held.release(), true).has_value());
    EXPECT_EQ(rig.engine().pins(), 1U) << "a held buffer is no pin";
    rig.engine().stop();
    rig.engine().stop();  // once more does nothing
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), pinned->bytes.begin()));
    const auto another = rig.pin(id);
    ASSERT_TRUE(another.has_value()) << "it is in DRAM: " << another.error().message();
    rig.engine().unpin(*another);
    rig.engine().unpin(*pinned);
    EXPECT_EQ(rig.engine().pins(), 0U);
    rig.stop();
}

TEST_F(EngineLife, stopping_ends_moves_and_refuses_new_data_but_reads_on) {
    EngineRig rig({.dram_bytes = 2 * kMi, .pmem_bytes = 4 * kMi, .workers = false});
    const Bytes above = some(kMi);
    const Bytes below = some(3 * kMi);
    LentBuffer held;
    held.bytes = some(1000);
    ASSERT_TRUE(rig.engine().adopt(held.bytes, held.release(), true).has_value());
    const TensorId b = rig.stored(below);
    const TensorId a = rig.stored(above);
    const Bytes last = some(900 * kKi);
    const TensorId c = rig.stored(last);
    ASSERT_GT(rig.copies().pending(), 0U) << "one of them leaves for the headroom";
    rig.pumping([&] { rig.engine().stop(); });
    EXPECT_EQ(rig.copies().pending(), 0U);
    EXPECT_EQ(rig.put(above).error().code(), Errc::closed);
    EXPECT_EQ(rig.put(below).error().code(), Errc::closed);
    LentBuffer buffer;
    buffer.bytes = above;
    EXPECT_EQ(rig.engine().adopt(buffer.bytes, buffer.release(), false).error().code(),
              Errc::closed);
    EXPECT_EQ(buffer.released, 0);
    EXPECT_EQ(rig.pin(b).error().code(), Errc::closed) << "it would have to move";
    EXPECT_EQ(rig.engine().prefetch(b).error().code(), Errc::closed);
    EXPECT_EQ(rig.read(a, above.size()), above);
    EXPECT_EQ(rig.read(b, below.size()), below);
    EXPECT_EQ(rig.read(c, last.size()), last);
    EXPECT_EQ(rig.copies().pending(), 0U) << "a move began after stop()";
    EXPECT_TRUE(rig.engine().drop(b).has_value());
    rig.stop();
    EXPECT_EQ(held.released, 1);
}

TEST_F(EngineLife, stopping_cancels_moves_and_wakes_whoever_waits_for_room) {
    EngineRig rig({.dram_bytes = kMi, .pmem_bytes = 4 * kMi, .workers = false});
    const TensorId resident = rig.stored(some(800 * kKi));
    auto waits = std::async(std::launch::async, [&] { return rig.engine().put(some(kMi)); });
    while (rig.engine().stats().store_stalls == 0) std::this_thread::yield();
    auto stops = std::async(std::launch::async, [&] { rig.engine().stop(); });
    // No copy goes on meanwhile: neither of the two may need one to be told.
    const auto refused = without_hanging([&] { return waits.get(); });
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code(), Errc::closed);
    EXPECT_EQ(rig.engine().prefetch(resident).error().code(), Errc::closed);
    EXPECT_TRUE(rig.step());
    EXPECT_FALSE(rig.step()) << "the copy went on, chunk after chunk";
    without_hanging([&] { stops.get(); });
}

TEST_F(EngineLife, a_store_during_which_the_engine_stops_leaves_nothing) {
    EngineRig rig({.dram_bytes = kMi, .pmem_bytes = 0, .swap_bytes = 8 * kMi});
    FaultInjection watch{Fault{}};
    watch.after_every_call([&](Call call) {
        if (call == Call::pwrite) rig.engine().stop();
    });
    const auto late = rig.engine().put(some(2 * kMi));
    ASSERT_FALSE(late.has_value()) << "stored after the end";
    EXPECT_EQ(late.error().code(), Errc::closed);
    EXPECT_EQ(rig.used(1), 0U);
}

TEST_F(EngineLife, an_adoption_during_which_the_engine_stops_leaves_the_buffer_alone) {
    LentBuffer late;
    late.bytes = some(512 * kKi);
    EngineRig rig({.dram_bytes = kMi, .pmem_bytes = 4 * kMi, .workers = false});
    struct Lender {
        EngineRig* rig;
        TensorId id;
        std::future<void> stops;
    } lender{.rig = &rig, .id = {}, .stops = {}};
    Bytes lent = some(kMi);
    const BufferRelease back{
        [](void* user, std::byte*, std::uint64_t) {
            auto& self = *static_cast<Lender*>(user);
            self.stops = std::async(std::launch::async, [&] { self.rig->engine().stop(); });
            while (self.rig->engine().prefetch(self.id).error().code() != Errc::closed) {
                std::this_thread::yield();
            }
        },
        &lender};
    lender.id = *rig.engine().adopt(lent, back, false);
    const auto pinned = rig.engine().pin(lender.id, Access::read);
    rig.run_all_copies();  // the pin keeps it in DRAM, with a good copy below
    rig.engine().unpin(*pinned);
    // Making room for this one moves the other out at once; its owner then stops the engine.
    const auto refused =
        without_hanging([&] { return rig.engine().adopt(late.bytes, late.release(), false); });
    without_hanging([&] { lender.stops.get(); });
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code(), Errc::closed);
    EXPECT_EQ(late.released, 0);
    EXPECT_EQ(rig.used(0), 0U);
    rig.stop();
}

TEST_F(EngineLife, dropping_wakes_whoever_waits_for_the_tensor) {
    EngineRig rig({.dram_bytes = kMi, .pmem_bytes = 4 * kMi, .workers = false});
    const TensorId id = rig.stored(some(kMi));
    rig.run_all_copies();
    ASSERT_EQ(rig.used(0), 0U);
    auto waits = std::async(std::launch::async, [&] { return rig.engine().pin(id, Access::read); });
    while (rig.copies().pending() == 0) std::this_thread::yield();
    ASSERT_TRUE(rig.engine().drop(id).has_value());
    const auto gone = rig.pumping([&] { return waits.get(); });
    ASSERT_FALSE(gone.has_value());
    EXPECT_EQ(gone.error().code(), Errc::not_found);
}

// Allocators hand out an address again at once: the owner that got its buffer back may lend the
// same one before the call that told it so has returned.
TEST_F(EngineLife, a_buffer_may_be_lent_again_as_soon_as_it_is_back) {
    EngineRig rig({});
    struct Lender {
        EngineRig* rig;
        Bytes bytes;
        Result<TensorId> again = Error(Errc::cancelled, 0, "not lent again");
    } lender{.rig = &rig, .bytes = some(5000)};
    const BufferRelease back{[](void* user, std::byte*, std::uint64_t) {
                                 auto& self = *static_cast<Lender*>(user);
                                 // On another thread, as a training loop would: this one is not
                                 // allowed to call in.
                                 std::thread([&self] {
                                     self.again = self.rig->engine().adopt(
                                         self.bytes,
                                         {[](void*, std::byte*, std::uint64_t) {}, nullptr}, false);
                                 }).join();
                             },
                             &lender};
    const auto id = rig.engine().adopt(lender.bytes, back, false);
    ASSERT_TRUE(id.has_value());
    ASSERT_TRUE(rig.engine().drop(*id).has_value());
    ASSERT_TRUE(lender.again.has_value()) << lender.again.error().message();
    EXPECT_EQ(rig.used(0), 5000U);
    EXPECT_EQ(rig.read(*lender.again, 5000), lender.bytes);
    rig.stop();
}

TEST_F(EngineLife, destruction_frees_all_that_is_held_moving_or_resident) {
    LentBuffer held;
    LentBuffer moving;
    {
        EngineRig rig({.dram_bytes = kMi, .pmem_bytes = kMi, .workers = false});
        held.bytes = some(400 * kKi);
        moving.bytes = some(600 * kKi);
        ASSERT_TRUE(rig.engine().adopt(held.bytes, held.release(), true).has_value());
        ASSERT_TRUE(rig.engine().adopt(moving.bytes, moving.release(), false).has_value());
        ASSERT_EQ(rig.copies().pending(), 1U);
        ASSERT_TRUE(rig.step());
    }
    EXPECT_EQ(held.released, 1);
    EXPECT_EQ(moving.released, 1);
}

TEST_F(EngineLife, the_trace_tells_the_last_step) {
    EngineRig rig({});
    const TensorId id = rig.stored(some(77));
    rig.engine().unpin(*rig.pin(id));
    rig.engine().end_step();
    const std::string trace = rig.engine().trace();
    EXPECT_NE(trace.find("frostline-trace 1\ntensor 0 77 activation\nkernel 0 "), std::string::npos)
        << trace;
    EXPECT_NE(trace.find(" store - 0\n"), std::string::npos) << trace;
    EXPECT_NE(trace.find(" use 0 -\n"), std::string::npos) << trace;
}

}  // namespace
}  // namespace frostline
