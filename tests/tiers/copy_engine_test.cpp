// Proves that the copy engine completes every copy exactly once, however it ends. That the bytes
// arrive is in copy_pairs_test.cpp.
#include "tiers/copy_engine.h"
#include "tests/tiers/inert_tier.h"
#include "tests/tiers/tier_specimen.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <latch>
#include <thread>

namespace frostline {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

std::unique_ptr<CopyEngine> engine_with(std::uint64_t chunk_bytes, bool workers = true) {
    return *CopyEngine::create({.chunk_bytes = chunk_bytes, .workers = workers});
}

// A tier that tells of itself what the test says and does nothing.
class StubTier final : public InertTier {
   public:
    explicit StubTier(TierKind kind) : InertTier({.kind = kind}) {}
    Result<void> write(const Extent&, std::uint64_t offset,
                       std::span<const std::byte>) noexcept override {
        ++writes;
        if (offset >= fail_write_at) return refusal_;
        if (on_write) on_write();
        return ok();
    }
    Result<void> read(const Extent&, std::uint64_t offset, std::span<std::byte>) noexcept override {
        if (offset >= fail_read_at) return refusal_;
        return ok();
    }
    using Tier::fence;
    Result<void> fence(std::span<const Extent>) noexcept override {
        ++fences;
        if (fail_fence) return refusal_;
        return ok();
    }

    std::uint64_t fail_write_at = UINT64_MAX;
    std::uint64_t fail_read_at = UINT64_MAX;
    bool fail_fence = false;
    std::function<void()> on_write;
    std::atomic<int> writes{0};
    std::atomic<int> fences{0};

   private:
    Error refusal_{Errc::io, 5, "the stub refused"};
};

CopyRequest between_stubs(StubTier& from, StubTier& to, std::uint64_t size_bytes,
                          std::function<void(const CopyOutcome&)> done) {
    return {&from,          {TierId{}, 0, size_bytes}, &to, {TierId{}, 0, size_bytes}, false,
            std::move(done)};
}

TEST(CopyEngine, WhatItCannotCopyIsRefusedAndDoneIsNotCalled) {
    const auto engine = engine_with(kMiB);
    StubTier swap(TierKind::swap);
    const auto never = [](const CopyOutcome&) { ADD_FAILURE() << "done was called"; };
    CopyRequest uneven = between_stubs(swap, swap, 5, never);
    uneven.target.length_bytes = 6;
    EXPECT_EQ(engine->submit(uneven).error().code(), Errc::invalid_argument);
    EXPECT_EQ(CopyEngine::create({.chunk_bytes = 0}).error().code(), Errc::invalid_argument);
}

TEST(CopyEngine, ErrorsOfEitherTierEndTheCopy) {
    struct Case {
        std::uint64_t read_at, write_at;
        bool fence;
        int writes, fences;
    };
    for (const Case& each :
         {Case{0, UINT64_MAX, false, 0, 0}, Case{2 * kPageBytes, UINT64_MAX, false, 2, 0},
          Case{UINT64_MAX, 0, false, 1, 0}, Case{UINT64_MAX, 2 * kPageBytes, false, 3, 0},
          Case{UINT64_MAX, UINT64_MAX, true, 4, 1}}) {
        StubTier from(TierKind::pmem);
        StubTier to(TierKind::pmem);
        from.fail_read_at = each.read_at;
        to.fail_write_at = each.write_at;
        to.fail_fence = each.fence;
        const auto engine = engine_with(kPageBytes);
        std::promise<CopyOutcome> ended;
        ASSERT_TRUE(
            engine->submit(between_stubs(from, to, 4 * kPageBytes, [&](const CopyOutcome& outcome) {
                ended.set_value(outcome);
            })));
        const CopyOutcome outcome = ended.get_future().get();
        ASSERT_FALSE(outcome.status.has_value());
        EXPECT_STREQ(outcome.status.error().message(), "the stub refused: Input/output error");
        EXPECT_EQ(to.writes, each.writes);
        EXPECT_EQ(to.fences, each.fences);
    }
}

TEST(CopyEngine, ACopyOfNothingIsDoneAndFenced) {
    StubTier from(TierKind::pmem);
    StubTier to(TierKind::pmem);
    const auto engine = engine_with(kPageBytes);
    std::promise<CopyOutcome> ended;
    ASSERT_TRUE(engine->submit(
        between_stubs(from, to, 0, [&](const CopyOutcome& outcome) { ended.set_value(outcome); })));
    EXPECT_TRUE(ended.get_future().get().status.has_value());
    EXPECT_EQ(to.fences, 1);
}

TEST(CopyEngine, ACancelledCopyStopsAtItsNextChunk) {
    StubTier from(TierKind::pmem);
    StubTier to(TierKind::pmem);
    const auto engine = engine_with(kPageBytes);
    std::latch writing(1);
    std::latch cancelled(1);
    to.on_write = [&] {
        if (to.writes == 2) {
            writing.count_down();
            cancelled.wait();
        }
    };
    std::promise<CopyOutcome> first;
    std::promise<CopyOutcome> second;
    const auto into = [](std::promise<CopyOutcome>& promise) {
        return [&promise](const CopyOutcome& outcome) { promise.set_value(outcome); };
    };
    auto running = engine->submit(between_stubs(from, to, 100 * kPageBytes, into(first)));
    auto waiting = engine->submit(between_stubs(from, to, 100 * kPageBytes, into(second)));
    writing.wait();
    running->cancel();
    waiting->cancel();
    waiting->cancel();  // twice is as good as once
    cancelled.count_down();
    EXPECT_EQ(first.get_future().get().status.error().code(), Errc::cancelled);
    EXPECT_EQ(second.get_future().get().status.error().code(), Errc::cancelled);
    EXPECT_EQ(to.writes, 2) << "it went on after it was cancelled";
    EXPECT_EQ(to.fences, 0);
    running->cancel();  // too late, and harmless
    CopyTicket nothing;
    nothing.cancel();
}

TEST(CopyEngine, ASlowDirectionHoldsUpNoOther) {
    StubTier pmem(TierKind::pmem);
    StubTier slow(TierKind::pmem);
    const ScratchFolder folder;
    const auto fast = tier_of(Specimen::dram, folder, kMiB);
    const auto engine = engine_with(kPageBytes);
    std::latch release_slow(1);
    slow.on_write = [&] { release_slow.wait(); };
    std::promise<void> slow_ended;
    ASSERT_TRUE(engine->submit(
        between_stubs(pmem, slow, 10, [&](const CopyOutcome&) { slow_ended.set_value(); })));
    const Extent source = *fast->reserve(10);
    const Extent target = *fast->reserve(10);
    std::promise<void> fast_ended;
    ASSERT_TRUE(engine->submit({fast.get(), source, fast.get(), target, false,
                                [&](const CopyOutcome&) { fast_ended.set_value(); }}));
    fast_ended.get_future().wait();
    release_slow.count_down();
    slow_ended.get_future().wait();
}

TEST(CopyEngine, ItsEndCompletesEveryCopyOnce) {
    StubTier from(TierKind::pmem);
    StubTier to(TierKind::pmem);
    StubTier pmem(TierKind::pmem);
    constexpr int kCopies = 50;
    std::atomic<int> completed{0};
    std::atomic<int> cancelled{0};
    std::atomic<int> refused{0};
    std::latch writing(1);
    std::latch ending(1);
    auto engine = engine_with(kPageBytes);
    CopyEngine* const running = engine.get();
    to.on_write = [&] {
        if (to.writes == 1) {
            writing.count_down();
            ending.wait();
        }
    };
    const auto done = [&](const CopyOutcome& outcome) {
        ++completed;
        if (!outcome.status && outcome.status.error().code() == Errc::cancelled) ++cancelled;
        // A successor submitted this late is refused, and not forgotten.
        const auto next = running->submit(between_stubs(from, to, 5, [](const CopyOutcome&) {
            ADD_FAILURE() << "a copy began after the end";
        }));
        if (!next && next.error().code() == Errc::closed) ++refused;
    };
    for (int i = 0; i < kCopies; ++i) {
        ASSERT_TRUE(engine->submit(between_stubs(from, i % 2 == 0 ? to : pmem, 100 * kPageBytes,
                                                 [&, i](const CopyOutcome& outcome) {
                                                     if (i % 2 == 0) done(outcome);
                                                 })));
    }
    writing.wait();
    std::thread releaser([&] {
        // Nothing observes that the destructor has begun; a refused copy proves that it has.
        while (true) {
            const auto ticket =
                running->submit(between_stubs(from, pmem, 0, [](const CopyOutcome&) {}));
            if (!ticket && ticket.error().code() == Errc::closed) break;
            std::this_thread::yield();
        }
        ending.count_down();
    });
    engine.reset();
    releaser.join();
    EXPECT_EQ(completed, kCopies / 2);
    EXPECT_EQ(cancelled, kCopies / 2) << "none of them can have been finished";
    EXPECT_EQ(refused, kCopies / 2);
    EXPECT_EQ(to.writes, 1);
}

TEST(CopyEngine, DoneMaySubmitTheNextCopy) {
    StubTier from(TierKind::pmem);
    StubTier to(TierKind::pmem);
    const auto engine = engine_with(kPageBytes);
    std::promise<int> ended;
    int links = 0;
    std::function<void(const CopyOutcome&)> next = [&](const CopyOutcome& outcome) {
        EXPECT_TRUE(outcome.status.has_value());
        if (++links == 200) {
            ended.set_value(links);
        } else {
            EXPECT_TRUE(engine->submit(between_stubs(from, to, 25, next)).has_value());
        }
    };
    ASSERT_TRUE(engine->submit(between_stubs(from, to, 25, next)));
    EXPECT_EQ(ended.get_future().get(), 200);
}

TEST(CopyEngine, WhatDoneHoldsIsDroppedWithoutALock) {
    // Its last reference may free things that call the engine again.
    for (const bool workers : {true, false}) {
        StubTier from(TierKind::pmem);
        StubTier to(TierKind::pmem);
        const auto engine = engine_with(kPageBytes, workers);
        std::promise<std::size_t> dropped;
        struct Calls {
            CopyEngine* engine;
            std::promise<std::size_t>* dropped;
            Calls(CopyEngine* made_by, std::promise<std::size_t>* tells)
                : engine(made_by), dropped(tells) {}
            ~Calls() { dropped->set_value(engine->pending()); }
        };
        auto held = std::make_shared<Calls>(engine.get(), &dropped);
        ASSERT_TRUE(engine->submit(
            between_stubs(from, to, 10, [held = std::move(held)](const CopyOutcome&) {})));
        while (!workers && engine->run_step(0)) {
        }
        EXPECT_EQ(dropped.get_future().get(), 0U);
    }
}

}  // namespace
}  // namespace frostline
