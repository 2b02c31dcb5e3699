// Proves that the more urgent copy goes first, also midway through another and after it was made
// more urgent, that queues are bounded, and that one fence serves a batch.
#include "tests/tiers/inert_tier.h"
#include "tests/tiers/tier_specimen.h"
#include "tiers/copy_engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <latch>
#include <memory>
#include <string>
#include <thread>

namespace frostline {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// Copies between two tiers of which the test makes every step.
class CopyPriorities : public testing::TestWithParam<Specimen> {
   protected:
    void submit(const std::string& name, CopyPriority priority, std::uint64_t pages) {
        const Extent source = *from_->reserve(pages * kPageBytes);
        const Extent target = *to_->reserve(pages * kPageBytes);
        auto ticket = engine_->submit({.source_tier = from_.get(),
                                       .source = source,
                                       .target_tier = to_.get(),
                                       .target = target,
                                       .done =
                                           [this, name](const CopyOutcome& outcome) {
                                               EXPECT_TRUE(outcome.status.has_value());
                                               order_ += name;
                                           },
                                       .priority = priority});
        ASSERT_TRUE(ticket.has_value()) << ticket.error().message();
        tickets_[name] = *ticket;
    }
    void run() {
        while (engine_->run_step(0)) {
        }
    }

    ScratchFolder folder_{ScratchFolder::On::memory};
    std::unique_ptr<Tier> from_ = tier_of(Specimen::dram, folder_, kMiB, TierId{0});
    std::unique_ptr<Tier> to_ = tier_of(GetParam(), folder_, kMiB, TierId{1});
    std::unique_ptr<CopyEngine> engine_ =
        *CopyEngine::create({.chunk_bytes = kPageBytes, .workers = false});
    std::map<std::string, CopyTicket> tickets_;
    std::string order_;
};

TEST_P(CopyPriorities, TheMostUrgentGoesFirstAndEqualsInTheirOrder) {
    submit("e", CopyPriority::eviction, 1);
    submit("p", CopyPriority::prefetch, 1);
    submit("d", CopyPriority::demand, 1);
    submit("D", CopyPriority::demand, 1);
    submit("P", CopyPriority::prefetch, 1);
    run();
    EXPECT_EQ(order_, "dDpPe");
}

TEST_P(CopyPriorities, ALongCopyGivesWayAtItsNextChunk) {
    submit("e", CopyPriority::eviction, 20);
    ASSERT_TRUE(engine_->run_step(0));
    submit("d", CopyPriority::demand, 1);
    run();
    EXPECT_EQ(order_, "de");
}

TEST_P(CopyPriorities, ACopyCanBeMadeMoreUrgent) {
    submit("p", CopyPriority::prefetch, 2);
    submit("P", CopyPriority::prefetch, 2);
    engine_->raise(tickets_["P"], CopyPriority::demand);
    engine_->raise(tickets_["P"], CopyPriority::eviction);  // never less urgent
    run();
    EXPECT_EQ(order_, "Pp");
    engine_->raise(tickets_["P"], CopyPriority::demand);  // it has ended: no effect
    engine_->raise(CopyTicket(), CopyPriority::demand);
    submit("p", CopyPriority::prefetch, 20);
    ASSERT_TRUE(engine_->run_step(0));
    submit("q", CopyPriority::prefetch, 1);
    engine_->raise(tickets_["p"], CopyPriority::demand);  // half done
    run();
    EXPECT_EQ(order_, "Pppq");
}

INSTANTIATE_TEST_SUITE_P(Targets, CopyPriorities,
                         testing::Values(Specimen::dram, Specimen::pmem, Specimen::swap_by_pages),
                         testing::PrintToStringParamName());

TEST(CopyQueues, AreBoundedAndSayWhenTheyAreFull) {
    const ScratchFolder folder(ScratchFolder::On::memory);
    const auto dram = tier_of(Specimen::dram, folder, kMiB);
    const auto engine = *CopyEngine::create({.workers = false, .queue_limit = 3});
    int ended = 0;
    const auto submit = [&](CopyPriority priority) {
        const Extent source = *dram->reserve(kPageBytes);
        const Extent target = *dram->reserve(kPageBytes);
        return engine->submit({.source_tier = dram.get(),
                               .source = source,
                               .target_tier = dram.get(),
                               .target = target,
                               .done = [&](const CopyOutcome&) { ++ended; },
                               .priority = priority});
    };
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(submit(CopyPriority::eviction).has_value());
    const auto full = submit(CopyPriority::eviction);
    ASSERT_FALSE(full.has_value());
    EXPECT_EQ(full.error().code(), Errc::busy);
    EXPECT_TRUE(submit(CopyPriority::demand).has_value()) << "who waits has a queue of its own";
    ASSERT_TRUE(engine->run_step(0));
    ASSERT_TRUE(engine->run_step(0));
    EXPECT_TRUE(submit(CopyPriority::eviction).has_value());
    while (engine->run_step(0)) {
    }
    EXPECT_EQ(ended, 5);
    EXPECT_EQ(CopyEngine::create({.queue_limit = 0}).error().code(), Errc::invalid_argument);
}

// A durable tier that counts what it is asked.
class CountingTier final : public InertTier {
   public:
    CountingTier() : InertTier({.kind = TierKind::pmem, .durable = true}) {}
    Result<void> write(const Extent& extent, std::uint64_t,
                       std::span<const std::byte>) noexcept override {
        if (extent.offset == 0) first_write_waits.wait();
        return ok();
    }
    using Tier::fence;
    Result<void> fence(std::span<const Extent> extents) noexcept override {
        ++fences;
        for (const Extent& each : extents) {
            if (each.offset == bad_offset) return Error(Errc::io, 5, "one of them failed");
        }
        return ok();
    }

    std::latch first_write_waits{1};
    std::atomic<int> fences{0};
    std::uint64_t bad_offset = UINT64_MAX;
};

// Submits copies while the worker is held up by the first, and returns how many ended well.
int run_batch(CountingTier& tier, int copies, CopyPriority priority) {
    std::atomic<int> good{0};
    std::latch ended(copies);
    const auto engine = *CopyEngine::create({});
    for (int i = 0; i < copies; ++i) {
        const Extent extent{TierId{}, static_cast<std::uint64_t>(i), 1};
        EXPECT_TRUE(engine
                        ->submit({.source_tier = &tier,
                                  .source = extent,
                                  .target_tier = &tier,
                                  .target = extent,
                                  .done =
                                      [&](const CopyOutcome& outcome) {
                                          good += outcome.status ? 1 : 0;
                                          ended.count_down();
                                      },
                                  .priority = priority})
                        .has_value());
    }
    tier.first_write_waits.count_down();
    ended.wait();
    return good;
}

TEST(CopyBatches, OneFenceServesManySmallCopies) {
    CountingTier tier;
    EXPECT_EQ(run_batch(tier, 200, CopyPriority::eviction), 200);
    EXPECT_EQ(tier.fences, 4) << "a batch has 64";
}

TEST(CopyBatches, WhoWaitsIsNotHeldUpByABatch) {
    CountingTier tier;
    EXPECT_EQ(run_batch(tier, 20, CopyPriority::demand), 20);
    EXPECT_EQ(tier.fences, 20);
}

TEST(CopyBatches, WhatWasFencedTogetherFailsTogether) {
    CountingTier tier;
    tier.bad_offset = 7;
    EXPECT_EQ(run_batch(tier, 30, CopyPriority::eviction), 0);
    EXPECT_EQ(tier.fences, 1) << "a second attempt could succeed without meaning it";
}

TEST(CopyWorkers, AreAsManyAsTheTargetTakesAndAreBoundNearIt) {
    class NearTier final : public InertTier {
       public:
        NearTier()
            : InertTier({.kind = TierKind::pmem, .numa_node = 3, .speed = {.best_writers = 2}}) {}
        Result<void> write(const Extent&, std::uint64_t,
                           std::span<const std::byte>) noexcept override {
            both_write.arrive_and_wait();  // one worker alone would wait for ever
            return ok();
        }
        std::latch both_write{2};
    };
    if (std::thread::hardware_concurrency() < 2) return;  // then one worker is right
    NearTier tier;
    std::atomic<int> bound{0};
    std::latch ended(2);
    const auto engine = *CopyEngine::create({.bind_worker = [&](int node) {
        EXPECT_EQ(node, 3);
        ++bound;
    }});
    for (int i = 0; i < 2; ++i) {
        const Extent extent{TierId{}, 0, 1};
        ASSERT_TRUE(engine->submit({.source_tier = &tier,
                                    .source = extent,
                                    .target_tier = &tier,
                                    .target = extent,
                                    .done = [&](const CopyOutcome&) { ended.count_down(); }}));
    }
    ended.wait();
    EXPECT_EQ(bound, 2);
}

}  // namespace
}  // namespace frostline
