// Proves the protocol of a move: between any two tiers the bytes arrive, and whatever fails on the
// way leaves the old copy authoritative, gives back what was reserved, and is reported.
#include "migration/mover.h"

#include "tests/tiers/inert_tier.h"
#include "tests/tiers/tier_specimen.h"
#include "tiers/checksum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

namespace frostline {
namespace {

constexpr std::uint64_t kBytes = 300'001;  // several chunks, and not whole ones
constexpr TierId kDram{0};
constexpr TierId kPmem{1};
constexpr TierId kSwap{2};

class MoverTest : public testing::Test {
   protected:
    MoverTest() {
        for (const Specimen each : {Specimen::dram, Specimen::pmem, Specimen::swap_by_pages}) {
            const auto id = static_cast<TierId>(tiers_.size());
            tiers_.push_back(tier_of(each, folder_, std::uint64_t{4} << 20, id));
            order_.push_back(tiers_.back().get());
        }
        build(true);
    }
    ~MoverTest() override {
        while (copies_->run_step(0)) {
        }
        std::unique_lock lock(mutex_);
        while (table_.size() > 0) {
            auto& tensor = const_cast<TensorRecord&>(table_.by_birth().front());
            (void)tensor.residency.release();
            mover_->retire(tensor, lock);
        }
        for (const Tier* const each : order_) EXPECT_EQ(each->usage().used_bytes, 0U);
    }

    void build(bool verify) {
        mover_.reset();
        copies_ = *CopyEngine::create({.chunk_bytes = 64 << 10, .workers = false});
        mover_ = std::make_unique<Mover>(Mover::Options{
            .tiers = order_,
            .copies = copies_.get(),
            .table = &table_,
            .mutex = &mutex_,
            .changed = &changed_,
            .verify = verify,
            .report = [this](const MoveReport& report) {
                reported_.push_back(report.error == nullptr ? std::nullopt
                                                            : std::optional(*report.error));
                copied_ = report.copied;
            }});
    }

    TensorRecord& tensor_in(TierId home) {
        Tier& tier = *order_[index_of(home)];
        const Extent extent = *tier.reserve(kBytes);
        EXPECT_TRUE(tier.write(extent, 0, bytes_).has_value());
        EXPECT_TRUE(tier.fence(extent).has_value());
        return **table_.create(kBytes, {extent, checksum(bytes_)});
    }
    Result<void> start(TensorRecord& tensor, TierId to) {
        std::unique_lock lock(mutex_);
        return mover_->start(tensor, to, CopyPriority::demand, lock);
    }
    void finish() {
        while (copies_->run_step(0)) {
        }
        EXPECT_EQ(mover_->busy(), 0U);
        for (std::uint8_t i = 0; i < 3; ++i) EXPECT_EQ(mover_->leaving_bytes(TierId{i}), 0U);
    }
    // Home, and nowhere else unless said, with the right bytes, and nothing in flight.
    void expect_at(const TensorRecord& tensor, TierId home, std::vector<TierId> spares = {}) {
        EXPECT_EQ(tensor.residency.load().home, home);
        EXPECT_FALSE(tensor.residency.load().moving);
        for (std::uint8_t i = 0; i < 3; ++i) {
            const TierId id{i};
            const bool wanted =
                id == home || std::find(spares.begin(), spares.end(), id) != spares.end();
            EXPECT_EQ(tensor.copy_in(id) != nullptr, wanted) << name(order_[i]->info().kind);
            EXPECT_EQ(order_[i]->usage().used_bytes, wanted ? round_up_to_page(kBytes) : 0);
            if (tensor.copy_in(id) != nullptr) {
                EXPECT_EQ(read_all(*order_[i], tensor.copy_in(id)->extent), bytes_);
            }
        }
    }
    void use(TensorRecord& tensor, Access access) {
        ASSERT_EQ(tensor.residency.pin(tensor.id().generation, access),
                  Residency::PinResult::pinned);
    }

    std::mt19937_64 random_ = random_stream(40);
    Bytes bytes_ = random_bytes(random_, kBytes);
    ScratchFolder folder_;
    std::vector<std::unique_ptr<Tier>> tiers_;
    std::vector<Tier*> order_;
    std::mutex mutex_;
    std::condition_variable changed_;
    TensorTable table_;
    std::vector<std::optional<Error>> reported_;
    bool copied_ = false;
    std::unique_ptr<CopyEngine> copies_;
    std::unique_ptr<Mover> mover_;
};

TEST_F(MoverTest, moves_between_any_two_tiers) {
    for (const bool verify : {true, false}) {
        build(verify);
        for (const TierId from : {kDram, kPmem, kSwap}) {
            for (const TierId to : {kDram, kPmem, kSwap}) {
                SCOPED_TRACE(testing::Message() << index_of(from) << " to " << index_of(to));
                TensorRecord& tensor = tensor_in(from);
                reported_.clear();
                ASSERT_TRUE(start(tensor, to).has_value());
                if (from != to) {
                    EXPECT_EQ(mover_->busy(), 1U);
                    EXPECT_EQ(mover_->leaving_bytes(from), kBytes);
                    const TierId elsewhere = from == kPmem ? kSwap : kPmem;
                    EXPECT_EQ(start(tensor, elsewhere).error().code(), Errc::busy);
                }
                finish();
                // Upwards the slower copy stays, because it saves the next eviction.
                expect_at(
                    tensor, to,
                    index_of(from) > index_of(to) ? std::vector{from} : std::vector<TierId>{});
                ASSERT_EQ(reported_.size(), from == to ? 0U : 1U);
                EXPECT_TRUE(from == to || !reported_[0].has_value());
                std::unique_lock lock(mutex_);
                ASSERT_EQ(tensor.residency.release(), Residency::ReleaseResult::retire);
                mover_->retire(tensor, lock);
            }
        }
    }
}

TEST_F(MoverTest, a_good_copy_makes_the_move_free) {
    TensorRecord& tensor = tensor_in(kPmem);
    ASSERT_TRUE(start(tensor, kDram).has_value());
    finish();
    EXPECT_TRUE(copied_);
    expect_at(tensor, kDram, {kPmem});
    ASSERT_TRUE(start(tensor, kPmem).has_value());
    EXPECT_EQ(copies_->pending(), 0U);
    EXPECT_FALSE(copied_);
    EXPECT_EQ(reported_.size(), 2U);
    expect_at(tensor, kPmem);
}

TEST_F(MoverTest, a_write_makes_copies_elsewhere_void) {
    TensorRecord& tensor = tensor_in(kPmem);
    ASSERT_TRUE(start(tensor, kDram).has_value());
    finish();
    use(tensor, Access::write);
    bytes_ = random_bytes(random_, kBytes);
    TensorCopy& home = *tensor.copies[0];
    ASSERT_TRUE(order_[0]->write(home.extent, 0, bytes_).has_value());
    home.checksum.reset();
    EXPECT_EQ(start(tensor, kPmem).error().code(), Errc::busy) << "it is being written";
    ASSERT_FALSE(tensor.residency.unpin());
    ASSERT_TRUE(start(tensor, kPmem).has_value());
    finish();
    EXPECT_TRUE(copied_) << "the void copy was taken for good";
    expect_at(tensor, kPmem);
}

TEST_F(MoverTest, pinned_and_released_tensors_do_not_move) {
    TensorRecord& tensor = tensor_in(kDram);
    use(tensor, Access::read);
    EXPECT_EQ(start(tensor, kPmem).error().code(), Errc::busy);
    EXPECT_EQ(tensor.residency.release(), Residency::ReleaseResult::retired_later);
    EXPECT_EQ(start(tensor, kPmem).error().code(), Errc::not_found);
    expect_at(tensor, kDram);
    EXPECT_TRUE(tensor.residency.unpin());
}

TEST_F(MoverTest, a_tier_without_room_refuses) {
    TensorRecord& tensor = tensor_in(kDram);
    const Extent rest = *order_[1]->reserve((std::uint64_t{4} << 20) - kPageBytes);
    EXPECT_EQ(start(tensor, kPmem).error().code(), Errc::no_space);
    order_[1]->release(rest);
    expect_at(tensor, kDram);
    EXPECT_TRUE(reported_.empty()) << "what never began is not reported";
}

TEST_F(MoverTest, a_copy_that_cannot_be_queued_is_rolled_back) {
    // A tier that gives less than it was asked for stands in for pmem.
    class Short final : public InertTier {
       public:
        Short() : InertTier({.id = kPmem, .kind = TierKind::pmem}) {}
        TierUsage usage() const noexcept override { return {reserved, reserved, true}; }
        Result<Extent> reserve(std::uint64_t size_bytes) noexcept override {
            reserved += size_bytes - 1;
            return Extent{kPmem, 0, size_bytes - 1};
        }
        void release(const Extent& extent) noexcept override { reserved -= extent.length_bytes; }
        std::uint64_t reserved = 0;
    } too_short;
    Tier* const pmem = std::exchange(order_[1], &too_short);
    TensorRecord& tensor = tensor_in(kDram);
    EXPECT_EQ(start(tensor, kPmem).error().code(), Errc::invalid_argument);
    EXPECT_EQ(too_short.reserved, 0U);
    EXPECT_EQ(mover_->busy(), 0U);
    order_[1] = pmem;
    expect_at(tensor, kDram);
    ASSERT_TRUE(start(tensor, kPmem).has_value()) << "it can still move elsewhere";
    finish();
    expect_at(tensor, kPmem);
}

struct FailingStep {
    const char* what;
    TierId from;
    TierId to;
    Fault fault;
};
std::ostream& operator<<(std::ostream& out, const FailingStep& step) {
    return out << step.what;
}

class MoverRollback : public MoverTest, public testing::WithParamInterface<FailingStep> {};

TEST_P(MoverRollback, leaves_the_old_copy_authoritative) {
    const auto& [what, from, to, fault] = GetParam();
    TensorRecord& tensor = tensor_in(from);
    {
        const FaultInjection injection(fault);
        ASSERT_TRUE(start(tensor, to).has_value());
        finish();
        EXPECT_EQ(injection.injected(), 1U);
    }
    ASSERT_EQ(reported_.size(), 1U);
    ASSERT_TRUE(reported_[0].has_value()) << "the failure went unreported";
    EXPECT_EQ(reported_[0]->native(), fault.error);
    expect_at(tensor, from);
    const bool target_failed = from != kSwap || fault.call != Call::uring_result;
    EXPECT_EQ(order_[index_of(to)]->usage().open, !target_failed);
    const auto again = start(tensor, to);
    finish();
    if (target_failed) {
        EXPECT_EQ(again.error().code(), Errc::closed) << "it takes no new data";
        expect_at(tensor, from);
    } else {
        EXPECT_TRUE(again.has_value());
        EXPECT_EQ(tensor.residency.load().home, to);
    }
}

INSTANTIATE_TEST_SUITE_P(
    Steps, MoverRollback,
    testing::Values(
        FailingStep{"first_write", kDram, kSwap, {.call = Call::uring_result, .error = ENOSPC}},
        FailingStep{
            "later_write", kDram, kSwap, {.call = Call::uring_result, .nth = 4, .error = EIO}},
        FailingStep{"fence", kDram, kPmem, {.call = Call::pmem_msync, .error = EIO}},
        FailingStep{"first_read", kSwap, kDram, {.call = Call::uring_result, .error = EIO}},
        FailingStep{
            "last_read", kSwap, kDram, {.call = Call::uring_result, .nth = 74, .error = EIO}},
        FailingStep{
            "read_of_staged", kSwap, kPmem, {.call = Call::uring_result, .nth = 2, .error = EIO}},
        FailingStep{"write_of_staged", kPmem, kSwap, {.call = Call::uring_result, .nth = 2}},
        FailingStep{"fence_of_staged", kSwap, kPmem, {.call = Call::pmem_msync, .error = EIO}}),
    [](const auto& step) { return std::string(step.param.what); });

TEST_F(MoverTest, changed_bytes_are_reported_as_corrupt) {
    for (const TierId from : {kPmem, kSwap}) {
        TensorRecord& tensor = tensor_in(from);
        Bytes spoiled = bytes_;
        spoiled[kBytes - 1] ^= std::byte{1};
        Tier& tier = *order_[index_of(from)];
        ASSERT_TRUE(tier.write(tensor.copy_in(from)->extent, 0, spoiled).has_value());
        reported_.clear();
        ASSERT_TRUE(start(tensor, kDram).has_value());
        finish();
        ASSERT_EQ(reported_.size(), 1U);
        ASSERT_TRUE(reported_[0].has_value()) << "bad bytes passed";
        EXPECT_EQ(reported_[0]->code(), Errc::corrupt);
        EXPECT_EQ(tensor.residency.load().home, from);
        EXPECT_EQ(tensor.copy_in(kDram), nullptr);
        EXPECT_EQ(order_[0]->usage().used_bytes, 0U);
    }
}

TEST_F(MoverTest, a_pin_during_the_copy_keeps_it_where_it_is) {
    TensorRecord& tensor = tensor_in(kDram);
    ASSERT_TRUE(start(tensor, kSwap).has_value());
    ASSERT_TRUE(copies_->run_step(0));
    use(tensor, Access::read);
    finish();
    expect_at(tensor, kDram, {kSwap});
    ASSERT_FALSE(tensor.residency.unpin());
    ASSERT_TRUE(start(tensor, kSwap).has_value());
    EXPECT_EQ(copies_->pending(), 0U) << "the copy is good: the next attempt is free";
    expect_at(tensor, kSwap);
}

TEST_F(MoverTest, a_pin_during_the_way_up_leaves_no_copy_above) {
    TensorRecord& tensor = tensor_in(kSwap);
    ASSERT_TRUE(start(tensor, kDram).has_value());
    ASSERT_TRUE(copies_->run_step(0));
    use(tensor, Access::read);
    finish();
    expect_at(tensor, kSwap);
    ASSERT_FALSE(tensor.residency.unpin());
}

TEST_F(MoverTest, a_write_during_the_copy_makes_it_void) {
    for (const bool still_pinned : {true, false}) {
        TensorRecord& tensor = tensor_in(kDram);
        ASSERT_TRUE(start(tensor, kPmem).has_value());
        ASSERT_TRUE(copies_->run_step(0));
        use(tensor, Access::write);
        if (!still_pinned) {
            ASSERT_FALSE(tensor.residency.unpin());
        }
        finish();
        expect_at(tensor, kDram);
        if (still_pinned) {
            ASSERT_FALSE(tensor.residency.unpin());
        }
        std::unique_lock lock(mutex_);
        ASSERT_EQ(tensor.residency.release(), Residency::ReleaseResult::retire);
        mover_->retire(tensor, lock);
    }
}

TEST_F(MoverTest, a_drop_during_the_copy_frees_everything) {
    for (const bool cancel : {true, false}) {
        TensorRecord& tensor = tensor_in(kDram);
        ASSERT_TRUE(start(tensor, kPmem).has_value());
        ASSERT_TRUE(copies_->run_step(0));
        ASSERT_EQ(tensor.residency.release(), Residency::ReleaseResult::retired_later);
        if (cancel) {
            const std::lock_guard lock(mutex_);
            mover_->cancel(tensor);
        }
        finish();
        EXPECT_EQ(table_.size(), 0U);
        for (const Tier* const each : order_) EXPECT_EQ(each->usage().used_bytes, 0U);
    }
}

TEST_F(MoverTest, only_a_copy_that_is_not_home_can_be_given_up) {
    TensorRecord& tensor = tensor_in(kPmem);
    std::unique_lock lock(mutex_);
    EXPECT_FALSE(mover_->drop_copy(tensor, kPmem, lock)) << "it is the only one";
    EXPECT_FALSE(mover_->drop_copy(tensor, kDram, lock)) << "there is none";
    ASSERT_TRUE(mover_->start(tensor, kDram, CopyPriority::demand, lock).has_value());
    EXPECT_FALSE(mover_->drop_copy(tensor, kPmem, lock)) << "it is being read";
    lock.unlock();
    finish();
    lock.lock();
    EXPECT_TRUE(mover_->drop_copy(tensor, kPmem, lock));
    lock.unlock();
    expect_at(tensor, kDram);
}

}  // namespace
}  // namespace frostline
