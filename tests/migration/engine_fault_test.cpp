// Proves that a failing medium loses nothing: it is closed to new data, what it holds stays
// readable, the next tier takes over, and whoever asks for bytes that cannot be had gets an error.
#include "tests/migration/engine_rig.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

namespace frostline {
namespace {

class EngineFault : public testing::Test {
   protected:
    Bytes some(std::uint64_t size_bytes) { return random_bytes(random_, size_bytes); }

    // Flips every byte of the tier's file, behind the tier's back.
    static void spoil(const Tier& tier) {
        std::string path = tier.info().location;
        if (tier.info().kind == TierKind::swap) {
            // The file has no name; the process's own descriptor leads to it.
            for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
                std::error_code gone;
                const std::string target = std::filesystem::read_symlink(each, gone).string();
                if (target.starts_with(tier.info().location + "/") &&
                    target.find("pmem") == std::string::npos) {
                    path = each.path().string();
                }
            }
        }
        const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
        ASSERT_GE(fd, 0) << path;
        Bytes bytes(kMi);
        off_t at = 0;
        for (ssize_t got = 0; (got = ::pread(fd, bytes.data(), bytes.size(), at)) > 0; at += got) {
            for (std::byte& each : bytes) each = ~each;
            ASSERT_EQ(::pwrite(fd, bytes.data(), static_cast<std::size_t>(got), at), got);
        }
        ASSERT_GT(at, 0);
        ASSERT_EQ(::close(fd), 0);
    }

    // Everything that was stored, checked at the end.
    struct Stored {
        TensorId id;
        Bytes bytes;
    };
    void store(EngineRig& rig, std::uint64_t size_bytes) {
        Bytes bytes = some(size_bytes);
        const auto id = rig.put(bytes);
        ASSERT_TRUE(id.has_value()) << id.error().message();
        stored_.push_back({*id, std::move(bytes)});
    }
    void expect_nothing_lost(EngineRig& rig) {
        for (const Stored& each : stored_)
            EXPECT_EQ(rig.read(each.id, each.bytes.size()), each.bytes);
        for (const Stored& each : stored_) {
            const auto pinned = rig.pin(each.id);
            ASSERT_TRUE(pinned.has_value()) << pinned.error().message();
            EXPECT_TRUE(std::equal(each.bytes.begin(), each.bytes.end(), pinned->bytes.begin()));
            rig.engine().unpin(*pinned);
        }
    }

    std::mt19937_64 random_ = random_stream(30);
    std::vector<Stored> stored_;
};

TEST_F(EngineFault, a_pmem_file_that_fails_is_closed_and_swap_takes_over) {
    for (const std::uint64_t nth : {1, 2, 4}) {
        SCOPED_TRACE(nth);
        stored_.clear();
        const FaultInjection fault(
            {.call = Call::pmem_msync, .nth = nth, .error = EIO, .from_then_on = true});
        EngineRig rig(
            {.dram_bytes = kMi, .pmem_bytes = 8 * kMi, .swap_bytes = 16 * kMi, .sync = true});
        for (int i = 0; i < 12; ++i) store(rig, 300 * kKi);
        EXPECT_FALSE(rig.tier(1).usage().open);
        EXPECT_GT(rig.used(2), 0U);
        EXPECT_GE(rig.engine().stats().failed_moves, 1U);
        expect_nothing_lost(rig);
    }
}

// The order of speeds is not the order of the tiers: who takes over may come before.
TEST_F(EngineFault, a_fast_swap_on_a_full_disk_hands_over_to_pmem) {
    // The pmem file and the first step of the swap file are there; nothing fits into that.
    const FaultInjection fault(
        {.call = Call::posix_fallocate, .nth = 3, .error = ENOSPC, .from_then_on = true});
    EngineRig rig({.dram_bytes = kMi, .pmem_bytes = 8 * kMi, .swap_bytes = 16 * kMi});
    rig.tier(1).calibrated({.read_bytes_per_s = 1'000'000});
    rig.tier(2).calibrated({.read_bytes_per_s = 9'000'000});
    for (int i = 0; i < 12; ++i) store(rig, 300 * kKi);
    EXPECT_GT(fault.injected(), 0U) << "swap was to be tried first";
    EXPECT_GT(rig.used(1), 0U);
    expect_nothing_lost(rig);
}

TEST_F(EngineFault, what_exceeds_dram_passes_a_failing_tier_too) {
    const FaultInjection fault({.call = Call::pmem_msync, .error = ENOSPC, .from_then_on = true});
    EngineRig rig({.dram_bytes = kMi, .pmem_bytes = 8 * kMi, .swap_bytes = 16 * kMi, .sync = true});
    store(rig, 2 * kMi);
    EXPECT_FALSE(rig.tier(1).usage().open);
    EXPECT_EQ(rig.used(1), 0U) << "the room of the failed attempt is given back";
    EXPECT_EQ(rig.used(2), 2 * kMi);
    EXPECT_EQ(rig.read(stored_[0].id, 2 * kMi), stored_[0].bytes);
}

TEST_F(EngineFault, a_full_disk_closes_swap_and_keeps_what_it_holds) {
    for (const int error : {ENOSPC, EIO}) {
        SCOPED_TRACE(error);
        stored_.clear();
        const FaultInjection fault(
            {.call = Call::pwrite, .nth = 20, .error = error, .from_then_on = true});
        EngineRig rig({.dram_bytes = kMi, .pmem_bytes = 0, .swap_bytes = 16 * kMi});
        Errc code{};
        for (int i = 0; i < 40 && code == Errc{}; ++i) {
            Bytes bytes = some(300 * kKi);
            const auto id = rig.put(bytes);
            if (id) {
                stored_.push_back({*id, std::move(bytes)});
            } else {
                code = id.error().code();
            }
        }
        EXPECT_NE(code, Errc{}) << "DRAM alone cannot hold all this";
        EXPECT_FALSE(rig.tier(1).usage().open);
        EXPECT_TRUE(rig.budgets_hold());
        for (const Stored& each : stored_) {
            EXPECT_EQ(rig.read(each.id, each.bytes.size()), each.bytes);
        }
    }
}

TEST_F(EngineFault, bytes_that_cannot_be_read_are_an_error_to_whoever_asks) {
    for (const bool verify : {true, false}) {
        SCOPED_TRACE(verify);
        EngineRig rig({.dram_bytes = kMi, .pmem_bytes = 0, .workers = false, .verify = verify});
        const Bytes bytes = some(kMi);
        const TensorId id = rig.stored(bytes);
        rig.stored(some(kMi));  // pushes the first one out
        rig.run_all_copies();
        {
            const FaultInjection fault({.call = Call::pread, .error = EIO, .from_then_on = true});
            for (int i = 0; i < 2; ++i) {
                const auto pinned = rig.pin(id);
                ASSERT_FALSE(pinned.has_value());
                EXPECT_EQ(pinned.error().code(), Errc::io) << pinned.error().message();
                EXPECT_EQ(pinned.error().native(), EIO);
            }
            Bytes out(bytes.size());
            EXPECT_EQ(rig.engine().read(id, out).error().code(), Errc::io);
        }
        const auto later = rig.pin(id);
        ASSERT_TRUE(later.has_value()) << "it was there all the while: " << later.error().message();
        EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), later->bytes.begin()));
        rig.engine().unpin(*later);
    }
}

// A tier that fails without closing must not be tried for ever: here staging finds no memory.
TEST_F(EngineFault, evictions_that_always_fail_end_the_wait_for_room) {
    const FaultInjection fault(
        {.call = Call::mmap, .nth = 2, .error = ENOMEM, .from_then_on = true});
    std::vector<std::byte> lent(3 * kMi + 1);
    EngineRig rig({.dram_bytes = kMi, .pmem_bytes = 0, .swap_bytes = 16 * kMi, .ring = true});
    Errc last{};
    for (std::uint64_t i = 0; i < 3; ++i) {
        const std::span<std::byte> buffer(lent.data() + 1 + i * kMi, kMi);  // on no page's start
        const BufferRelease nothing{[](void*, std::byte*, std::uint64_t) {}, nullptr};
        const auto id = without_hanging([&] { return rig.engine().adopt(buffer, nothing, false); });
        if (!id) last = id.error().code();
    }
    EXPECT_GT(fault.injected(), 0U) << "nothing was staged";
    EXPECT_EQ(last, Errc::out_of_memory);
}

TEST_F(EngineFault, all_who_wait_for_unreadable_bytes_get_an_error) {
    // Armed before the workers start, and until they are gone.
    const FaultInjection fault({.call = Call::pread, .error = EIO, .from_then_on = true});
    EngineRig rig({.dram_bytes = kMi, .pmem_bytes = 0});
    const TensorId id = rig.stored(some(kMi));
    rig.stored(some(kMi));
    std::vector<std::future<Result<PinnedBytes>>> waiting;
    for (int i = 0; i < 4; ++i) {
        waiting.push_back(
            std::async(std::launch::async, [&] { return rig.engine().pin(id, Access::read); }));
    }
    for (auto& each : waiting) {
        const auto pinned = without_hanging([&] { return each.get(); });
        ASSERT_FALSE(pinned.has_value());
        EXPECT_EQ(pinned.error().code(), Errc::io);
    }
}

TEST_F(EngineFault, changed_bytes_are_an_error_and_never_returned_as_good) {
    for (const bool pmem : {true, false}) {
        SCOPED_TRACE(pmem ? "pmem" : "swap");
        EngineRig rig({.dram_bytes = kMi, .pmem_bytes = pmem ? 4 * kMi : 0, .swap_bytes = 8 * kMi});
        const TensorId moved = rig.stored(some(kMi));
        rig.stored(some(kMi));
        const TensorId written_through = rig.stored(some(kMi + 1));
        ASSERT_GE(rig.used(1), 2 * kMi);
        spoil(rig.tier(1));
        const auto pinned = rig.pin(moved);
        ASSERT_FALSE(pinned.has_value()) << "bad bytes came back";
        EXPECT_EQ(pinned.error().code(), Errc::corrupt);
        Bytes out(kMi);
        EXPECT_EQ(rig.engine().read(moved, out).error().code(), Errc::corrupt);
        out.resize(kMi + 1);
        EXPECT_EQ(rig.engine().read(written_through, out).error().code(), Errc::corrupt);
        EXPECT_TRUE(rig.engine().drop(moved).has_value());
    }
}

// The program owns the bytes in DRAM. If it changes some under a pin for reading, nobody who needs
// room waits for ever because a checksum keeps them from leaving.
TEST_F(EngineFault, bytes_changed_in_dram_do_not_keep_a_store_waiting) {
    EngineRig rig({.dram_bytes = kMi, .pmem_bytes = 2 * kMi, .swap_bytes = 0, .workers = false});
    const TensorId id = rig.stored(some(kMi));
    rig.run_all_copies();
    const auto pinned = rig.pin(id, Access::read);
    ASSERT_TRUE(pinned.has_value());
    pinned->bytes[0] = ~pinned->bytes[0];
    rig.engine().unpin(*pinned);
    ASSERT_EQ(rig.used(1), kMi) << "a spare copy of what it was";
    const TensorId large = rig.stored(some(2 * kMi));  // the spare copy makes way for it
    ASSERT_TRUE(rig.engine().drop(large).has_value());
    ASSERT_EQ(rig.used(1), 0U);
    EXPECT_TRUE(rig.put(some(512 * kKi)).has_value());
}

}  // namespace
}  // namespace frostline
