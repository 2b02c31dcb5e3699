// Proves that copies between a device and swap keep the slower of the two busy, whichever it is and
// however late its transfers end. Both are models that share one clock, on which the processor's
// own work takes no time.
#include "tests/tiers/inert_tier.h"
#include "tiers/copy_engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <new>
#include <optional>
#include <ostream>
#include <vector>

namespace frostline {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::size_t kDepth = 32;

// Carries transfers one after the other, and tells each end a while after.
struct Medium {
    double gb_per_s = 1;
    std::uint64_t latency_ns = 0;
    std::uint64_t piece_bytes = kMiB;
    /// As io_uring does: it begins what was pushed when it is next entered, which is when there is
    /// nothing else to tell or a quarter of the queue was pushed.
    bool entered_late = false;
};

class ModelQueue final : public TransferQueue {
   public:
    ModelQueue(const Medium& medium, std::uint64_t& now_ns) : medium_(medium), now_ns_(now_ns) {}

    std::size_t depth() const noexcept override { return kDepth; }
    TransferPiece next_piece(const Extent& extent, std::uint64_t offset,
                             const std::byte* memory) const noexcept override {
        return {std::min(extent.length_bytes - offset, medium_.piece_bytes), memory != nullptr};
    }
    Result<std::span<std::byte>> staging(std::size_t slot) noexcept override {
        std::vector<std::byte>& buffer = staging_.at(slot);
        buffer.resize(medium_.piece_bytes);
        return std::span(buffer);
    }
    void push(const Transfer& transfer) noexcept override {
        EXPECT_LT(held_.size() + in_flight_.size(), kDepth);
        held_.push_back({transfer.tag, transfer.bytes.size()});
        if (!medium_.entered_late) enter();
    }
    TransferEnd wait() noexcept override {
        if (!any_ended() || held_.size() * 4 >= kDepth) enter();
        EXPECT_FALSE(in_flight_.empty());
        now_ns_ = std::max(now_ns_, in_flight_.front().ends_ns);
        return take();
    }
    std::optional<TransferEnd> poll() noexcept override {
        if (!any_ended() || held_.size() * 4 >= kDepth) enter();
        if (!any_ended()) return std::nullopt;
        return take();
    }

   private:
    struct Held {
        std::uint64_t tag, bytes;
    };
    struct InFlight {
        std::uint64_t tag, ends_ns;
    };
    bool any_ended() const { return !in_flight_.empty() && in_flight_.front().ends_ns <= now_ns_; }
    void enter() {
        for (const Held& each : held_) {
            const auto carried = static_cast<double>(each.bytes) / medium_.gb_per_s;
            free_ns_ = std::max(free_ns_, now_ns_) + static_cast<std::uint64_t>(carried);
            in_flight_.push_back({each.tag, free_ns_ + medium_.latency_ns});
        }
        held_.clear();
    }
    TransferEnd take() {
        const std::uint64_t tag = in_flight_.front().tag;
        in_flight_.pop_front();
        return {tag, ok()};
    }

    const Medium& medium_;
    std::uint64_t& now_ns_;
    std::vector<std::vector<std::byte>> staging_{kDepth};
    std::vector<Held> held_;
    std::deque<InFlight> in_flight_;
    std::uint64_t free_ns_ = 0;
};

class ModelTier final : public InertTier {
   public:
    ModelTier(TierKind kind, const Medium& medium, std::uint64_t& now_ns)
        : InertTier({.kind = kind}), medium_(medium), now_ns_(now_ns) {}
    Result<std::unique_ptr<TransferQueue>> open_queue() noexcept override {
        return std::unique_ptr<TransferQueue>(new (std::nothrow) ModelQueue(medium_, now_ns_));
    }

   private:
    Medium medium_;
    std::uint64_t& now_ns_;
};

struct Speeds {
    double link_gb_per_s;
    double disk_gb_per_s;
    bool down;
};

std::ostream& operator<<(std::ostream& out, const Speeds& speeds) {
    return out << "link of " << speeds.link_gb_per_s << ", disk of " << speeds.disk_gb_per_s
               << " GB/s, " << (speeds.down ? "down" : "up");
}

class RelayedPaceTest : public testing::TestWithParam<Speeds> {};

TEST_P(RelayedPaceTest, TheSlowerOfTheTwoIsNeverIdle) {
    const Speeds& speeds = GetParam();
    std::uint64_t now_ns = 0;
    ModelTier device(TierKind::device, {.gb_per_s = speeds.link_gb_per_s}, now_ns);
    ModelTier disk(TierKind::swap,
                   {.gb_per_s = speeds.disk_gb_per_s,
                    .latency_ns = 1'500'000,
                    .piece_bytes = kMiB / 2,
                    .entered_late = true},
                   now_ns);
    const auto engine = *CopyEngine::create({.workers = false});
    constexpr int kCopies = 8;
    constexpr std::uint64_t kBytes = 32 * kMiB;
    int ended = 0;
    for (int i = 0; i < kCopies; ++i) {
        Tier& from = speeds.down ? static_cast<Tier&>(device) : disk;
        Tier& to = speeds.down ? static_cast<Tier&>(disk) : device;
        const Extent extent{TierId{}, static_cast<std::uint64_t>(i) * kBytes, kBytes};
        ASSERT_TRUE(engine->submit({.source_tier = &from,
                                    .source = extent,
                                    .target_tier = &to,
                                    .target = extent,
                                    .done = [&](const CopyOutcome& outcome) {
                                        EXPECT_TRUE(outcome.status.has_value());
                                        ++ended;
                                    }}));
    }
    while (engine->run_step(0)) {
    }
    EXPECT_EQ(ended, kCopies);
    const double slower = std::min(speeds.link_gb_per_s, speeds.disk_gb_per_s);
    EXPECT_GT(kCopies * kBytes / static_cast<double>(now_ns), 0.95 * slower);
}

INSTANTIATE_TEST_SUITE_P(Speeds, RelayedPaceTest, [] {
    std::vector<Speeds> all;
    for (const double link : {1.0, 4.0, 8.0}) {
        for (const double disk : {1.0, 3.0, 7.0}) {
            all.push_back({link, disk, true});
            all.push_back({link, disk, false});
        }
    }
    return testing::ValuesIn(all);
}());

}  // namespace
}  // namespace frostline
