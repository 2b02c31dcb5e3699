// Proves the residency word against a sequential model: from every state, every transition is
// allowed exactly when the invariants of residency.h allow it, and says what it must.
#include "allocator/residency.h"
#include "tests/tiers/seed.h"

#include <gtest/gtest.h>

#include <set>
#include <tuple>
#include <vector>

namespace frostline {
namespace {

constexpr TierId kDram{1};
constexpr TierId kPmem{2};

// The same protocol written as plain sentences over plain variables.
struct Model {
    TierId home{};
    TierId target{};
    bool moving = false;
    bool released = true;
    bool written = false;
    unsigned pins = 0;
    std::uint32_t generation = 0;

    bool idle_and_given_up() const { return released && !moving && pins == 0; }

    void reset(TierId at, std::uint32_t generation_now) {
        *this = {at, TierId{}, false, false, false, 0, generation_now};
    }
    Residency::PinResult pin(std::uint32_t of, Access access) {
        if (released || of != generation) return Residency::PinResult::gone;
        if (pins == Residency::kMaxPins) return Residency::PinResult::too_many_pins;
        ++pins;
        if (access == Access::write) written = true;
        return Residency::PinResult::pinned;
    }
    bool unpin() {
        --pins;
        return idle_and_given_up();
    }
    bool clear_written() {
        if (pins > 0 || moving) return false;
        written = false;
        return true;
    }
    bool begin_move(TierId to) {
        if (pins > 0 || moving || released || written || to == home) return false;
        moving = true;
        target = to;
        return true;
    }
    Residency::PublishResult publish() {
        if (released) return Residency::PublishResult::released;
        if (written) return Residency::PublishResult::written;
        if (pins > 0) return Residency::PublishResult::pinned;
        home = target;
        moving = false;
        return Residency::PublishResult::published;
    }
    bool end_move() {
        moving = false;
        return idle_and_given_up();
    }
    Residency::ReleaseResult release() {
        if (released) return Residency::ReleaseResult::already;
        released = true;
        return idle_and_given_up() ? Residency::ReleaseResult::retire
                                   : Residency::ReleaseResult::retired_later;
    }
};

void expect_same(const Residency& residency, const Model& model) {
    const ResidencyState state = residency.load();
    ASSERT_EQ(state.home, model.home);
    ASSERT_EQ(state.moving, model.moving);
    if (model.moving) {
        ASSERT_EQ(state.target, model.target);
    }
    ASSERT_EQ(state.released, model.released);
    ASSERT_EQ(state.written, model.written);
    ASSERT_EQ(state.pins, model.pins);
    ASSERT_EQ(state.generation, model.generation);
}

TEST(Residency, AgreesWithTheModelOnRandomWalks) {
    std::set<std::tuple<bool, bool, bool, bool, int>> seen;  // state flags and transition
    for (std::uint64_t stream = 200; stream < 230; ++stream) {
        auto random = random_stream(stream);
        Residency residency;
        Model model;
        for (int step = 0; step < 3000; ++step) {
            const auto tier = static_cast<TierId>(between(random, 0, kMaxTiers - 1));
            const auto access = between(random, 0, 2) == 0 ? Access::write : Access::read;
            const std::uint32_t stale = model.generation - (between(random, 0, 5) == 0 ? 1 : 0);
            const int transition = static_cast<int>(between(random, 0, 9));
            seen.emplace(model.moving, model.released, model.written, model.pins > 0, transition);
            switch (transition) {
                case 0:
                    ASSERT_EQ(residency.release(), model.release());
                    break;
                case 1:
                case 2:
                    ASSERT_EQ(residency.pin(stale, access), model.pin(stale, access));
                    break;
                case 3:
                case 4:
                    if (model.pins > 0) {
                        ASSERT_EQ(residency.unpin(), model.unpin());
                    }
                    break;
                case 5:
                    ASSERT_EQ(residency.clear_written(), model.clear_written());
                    break;
                case 6:
                case 7:
                    ASSERT_EQ(residency.begin_move(tier), model.begin_move(tier));
                    break;
                case 8:
                    if (model.moving) {
                        ASSERT_EQ(residency.publish(), model.publish());
                    }
                    break;
                default:
                    if (model.idle_and_given_up()) {
                        const auto generation = static_cast<std::uint32_t>(random());
                        residency.reset(tier, generation);
                        model.reset(tier, generation);
                    } else if (model.moving) {
                        ASSERT_EQ(residency.end_move(), model.end_move());
                    }
            }
            expect_same(residency, model);
            if (HasFatalFailure()) return;
        }
    }
    // 16 combinations of flags, 10 transitions. Not moving while pinned and released, and so on,
    // are all reachable: nothing may be missed.
    EXPECT_EQ(seen.size(), 160U);
}

class ResidencyTest : public testing::Test {
   protected:
    ResidencyTest() { residency_.reset(kDram, 7); }
    void pin(Access access = Access::read) {
        ASSERT_EQ(residency_.pin(7, access), Residency::PinResult::pinned);
    }
    Residency residency_;
};

TEST_F(ResidencyTest, EveryFieldHasRoomForItsWholeRange) {
    for (std::size_t home = 0; home < kMaxTiers; ++home) {
        for (std::size_t target = 0; target < kMaxTiers; ++target) {
            if (home == target) continue;
            Residency residency;
            residency.reset(static_cast<TierId>(home), UINT32_MAX);
            ASSERT_TRUE(residency.begin_move(static_cast<TierId>(target)));
            for (unsigned i = 0; i < 5; ++i) (void)residency.pin(UINT32_MAX, Access::write);
            EXPECT_EQ(residency.load(),
                      (ResidencyState{static_cast<TierId>(home), static_cast<TierId>(target), true,
                                      false, true, 5, UINT32_MAX}));
        }
    }
}

TEST_F(ResidencyTest, PinsStopAtTheirMaximumAndSpillIntoNothing) {
    for (unsigned i = 0; i < Residency::kMaxPins; ++i) pin();
    EXPECT_EQ(residency_.pin(7, Access::write), Residency::PinResult::too_many_pins);
    EXPECT_EQ(residency_.load(),
              (ResidencyState{kDram, TierId{}, false, false, false, Residency::kMaxPins, 7}));
    EXPECT_EQ(residency_.pin(8, Access::read), Residency::PinResult::gone);
    for (unsigned i = 0; i < Residency::kMaxPins; ++i) EXPECT_FALSE(residency_.unpin());
    EXPECT_EQ(residency_.load().pins, 0U);
}

TEST_F(ResidencyTest, AStaleGenerationPinsNothing) {
    EXPECT_EQ(residency_.pin(6, Access::write), Residency::PinResult::gone);
    EXPECT_EQ(residency_.pin(8, Access::write), Residency::PinResult::gone);
    EXPECT_EQ(residency_.pin(0, Access::write), Residency::PinResult::gone);
    EXPECT_FALSE(residency_.load().written);
    EXPECT_EQ(residency_.load().pins, 0U);
}

TEST_F(ResidencyTest, AMoveThatNobodyDisturbsIsPublished) {
    ASSERT_TRUE(residency_.begin_move(kPmem));
    EXPECT_EQ(residency_.load().home, kDram) << "the old copy is authoritative until then";
    EXPECT_EQ(residency_.publish(), Residency::PublishResult::published);
    EXPECT_EQ(residency_.load().home, kPmem);
    EXPECT_FALSE(residency_.load().moving);
}

TEST_F(ResidencyTest, APinDuringTheCopyKeepsTheHome) {
    ASSERT_TRUE(residency_.begin_move(kPmem));
    pin();
    EXPECT_EQ(residency_.publish(), Residency::PublishResult::pinned);
    EXPECT_FALSE(residency_.end_move());
    EXPECT_EQ(residency_.load().home, kDram);
}

TEST_F(ResidencyTest, AWriteDuringTheCopyVoidsItEvenWhenItIsOver) {
    ASSERT_TRUE(residency_.begin_move(kPmem));
    pin(Access::write);
    EXPECT_FALSE(residency_.unpin());
    EXPECT_FALSE(residency_.clear_written()) << "the copy of the old bytes would be published";
    EXPECT_EQ(residency_.publish(), Residency::PublishResult::written);
    EXPECT_FALSE(residency_.end_move());
    EXPECT_FALSE(residency_.begin_move(kPmem)) << "a stale copy may be there still";
    EXPECT_TRUE(residency_.clear_written());
    EXPECT_TRUE(residency_.begin_move(kPmem));
}

TEST_F(ResidencyTest, WhoeverUsesItLastRetiresIt) {
    ASSERT_TRUE(residency_.begin_move(kPmem));
    pin();
    pin();
    EXPECT_EQ(residency_.release(), Residency::ReleaseResult::retired_later);
    EXPECT_EQ(residency_.release(), Residency::ReleaseResult::already);
    EXPECT_EQ(residency_.pin(7, Access::read), Residency::PinResult::gone);
    EXPECT_FALSE(residency_.unpin());
    EXPECT_EQ(residency_.publish(), Residency::PublishResult::released);
    EXPECT_FALSE(residency_.end_move());
    EXPECT_TRUE(residency_.unpin());
}

using ResidencyDeathTest = ResidencyTest;

TEST_F(ResidencyDeathTest, MisuseEndsTheProgram) {
    testing::GTEST_FLAG(death_test_style) = "threadsafe";
    EXPECT_DEATH((void)residency_.unpin(), "unpinned more often");
    EXPECT_DEATH((void)residency_.end_move(), "had not begun");
    EXPECT_DEATH((void)residency_.publish(), "had not begun");
    EXPECT_DEATH(residency_.reset(kPmem, 8), "in use");
    EXPECT_DEATH(
        {
            pin();
            (void)residency_.release();
            residency_.reset(kPmem, 8);
        },
        "in use");
}

}  // namespace
}  // namespace frostline
