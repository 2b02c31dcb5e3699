// Proves that without workers a test decides every interleaving of copies, chunk by chunk, and that
// whatever the order, every copy is right and complete exactly once.
#include "tests/tiers/tier_specimen.h"
#include "tiers/checksum.h"
#include "tiers/copy_engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace frostline {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class CopySteps : public testing::Test {
   protected:
    CopySteps() {
        for (const Specimen each : {Specimen::dram, Specimen::pmem, Specimen::swap_by_pages}) {
            tiers_.push_back(
                tier_of(each, folder_, 4 * kMiB, TierId{static_cast<std::uint8_t>(tiers_.size())}));
        }
        engine_ = *CopyEngine::create({.chunk_bytes = 4096, .workers = false});
    }

    struct Copy {
        Extent source;
        Extent target;
        Bytes expected;
        int ends = 0;
        Result<void> status = ok();
        std::uint64_t checksum = 0;
        CopyTicket ticket;
        bool cancelled = false;
    };

    Tier& tier(const Extent& extent) { return *tiers_[index_of(extent.tier)]; }

    Copy& submit(std::mt19937_64& random, std::size_t from, std::size_t to,
                 std::uint64_t size_bytes) {
        auto copy = std::make_unique<Copy>();
        copy->source = *tiers_[from]->reserve(size_bytes);
        copy->target = *tiers_[to]->reserve(size_bytes);
        copy->expected = random_bytes(random, size_bytes);
        EXPECT_TRUE(tiers_[from]->write(copy->source, 0, copy->expected).has_value());
        Copy* const raw = copy.get();
        auto ticket = engine_->submit({tiers_[from].get(), copy->source, tiers_[to].get(),
                                       copy->target, true, [this, raw](const CopyOutcome& outcome) {
                                           ++raw->ends;
                                           raw->status = outcome.status;
                                           raw->checksum = outcome.checksum;
                                           order_.push_back(raw->expected.size());
                                       }});
        EXPECT_TRUE(ticket.has_value());
        copy->ticket = *ticket;
        copies_.push_back(std::move(copy));
        return *copies_.back();
    }

    void expect_right(Copy& copy) {
        EXPECT_EQ(copy.ends, 1);
        if (copy.status) {
            EXPECT_EQ(copy.checksum, checksum(copy.expected));
            EXPECT_TRUE(read_all(tier(copy.target), copy.target) == copy.expected);
        } else {
            EXPECT_EQ(copy.status.error().code(), Errc::cancelled);
            EXPECT_TRUE(copy.cancelled) << "a copy was cancelled that nobody gave up";
        }
    }

    ScratchFolder folder_{ScratchFolder::On::memory};
    std::vector<std::unique_ptr<Tier>> tiers_;
    std::vector<std::unique_ptr<Copy>> copies_;
    std::vector<std::uint64_t> order_;
    std::unique_ptr<CopyEngine> engine_;
};

TEST_F(CopySteps, NothingRunsByItself) {
    auto random = random_stream(90);
    EXPECT_EQ(engine_->pending(), 0U);
    EXPECT_FALSE(engine_->run_step(0));
    Copy& first = submit(random, 0, 2, 3 * 4096);
    Copy& second = submit(random, 2, 0, 4096);
    EXPECT_EQ(engine_->pending(), 2U);
    EXPECT_FALSE(engine_->run_step(2)) << "there are two directions only";
    // A step starts a transfer of a page, or ends one; or it copies a chunk.
    for (int step = 1; step <= 6; ++step) {
        EXPECT_EQ(first.ends, 0);
        EXPECT_TRUE(engine_->run_step(0));
    }
    EXPECT_EQ(first.ends, 1);
    EXPECT_EQ(engine_->pending(), 1U);
    EXPECT_TRUE(engine_->run_step(0));
    EXPECT_EQ(second.ends, 0);
    EXPECT_TRUE(engine_->run_step(0));
    EXPECT_EQ(second.ends, 1);
    EXPECT_EQ(engine_->pending(), 0U);
    expect_right(first);
    expect_right(second);
}

TEST_F(CopySteps, EveryInterleavingIsRight) {
    for (std::uint64_t stream = 100; stream < 130 && !HasFailure(); ++stream) {
        auto random = random_stream(stream);
        std::uint64_t to_submit = 12;
        while (to_submit > 0 || engine_->pending() > 0) {
            const std::uint64_t choice = between(random, 0, 9);
            if (to_submit > 0 && choice < 2) {
                submit(random, between(random, 0, 2), between(random, 0, 2),
                       random_size(random, 60000));
                --to_submit;
            } else if (choice == 2 && !copies_.empty()) {
                Copy& given_up = *copies_[between(random, 0, copies_.size() - 1)];
                given_up.cancelled |= given_up.ends == 0;
                given_up.ticket.cancel();
            } else if (const std::size_t pending = engine_->pending(); pending > 0) {
                ASSERT_TRUE(engine_->run_step(between(random, 0, pending - 1)));
            }
        }
        ASSERT_EQ(copies_.size(), 12U);
        for (const auto& copy : copies_) {
            expect_right(*copy);
            tier(copy->source).release(copy->source);
            tier(copy->target).release(copy->target);
        }
        copies_.clear();
    }
    for (const auto& tier : tiers_) EXPECT_EQ(tier->usage().used_bytes, 0U);
}

TEST_F(CopySteps, CopiesOfOneDirectionKeepTheirOrder) {
    auto random = random_stream(91);
    for (std::uint64_t size = 1; size <= 20; ++size) submit(random, 0, 1, size * 1000);
    while (engine_->run_step(0)) {
    }
    ASSERT_EQ(order_.size(), 20U);
    EXPECT_TRUE(std::is_sorted(order_.begin(), order_.end()));
}

TEST_F(CopySteps, CancelledBeforeItsFirstChunkACopyTouchesNothing) {
    auto random = random_stream(92);
    Copy& copy = submit(random, 0, 0, 9000);
    std::fill_n(tiers_[0]->address(copy.target), 9000, std::byte{0x11});
    copy.cancelled = true;
    copy.ticket.cancel();
    EXPECT_TRUE(engine_->run_step(0));
    EXPECT_FALSE(engine_->run_step(0));
    expect_right(copy);
    EXPECT_EQ(read_all(*tiers_[0], copy.target), Bytes(9000, std::byte{0x11}));
}

TEST_F(CopySteps, TheEndCompletesWhatIsQueuedAndWhatIsHalfDone) {
    auto random = random_stream(93);
    for (std::size_t i = 0; i < 9; ++i) submit(random, i / 3, i % 3, 20000);
    submit(random, 0, 2, 50000);
    for (std::size_t i = 0; i < 9; ++i) ASSERT_TRUE(engine_->run_step(i));
    for (const auto& copy : copies_) {
        EXPECT_EQ(copy->ends, 0);
        copy->cancelled = true;
    }
    engine_.reset();
    for (const auto& copy : copies_) {
        expect_right(*copy);
        EXPECT_FALSE(copy->status.has_value());
    }
}

}  // namespace
}  // namespace frostline
