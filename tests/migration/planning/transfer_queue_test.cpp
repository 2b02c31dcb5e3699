// Whatever is joined and put in order, the queues carry the bytes that the plan moves, in each
// step.
#include "migration/planning/transfer_queue.h"
#include "tests/migration/planning/random_step.h"
#include "tests/tiers/seed.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace frostline {
namespace {

constexpr std::uint32_t kSteps = 4;
constexpr std::uint64_t kLargestCopyBytes = 100;

using BytesOfSteps = std::map<std::tuple<std::int64_t, LinkIndex, TensorIndex>, std::uint64_t>;

BytesOfSteps bytes_by_step(const std::vector<std::vector<QueuedCopy>>& queues) {
    BytesOfSteps bytes;
    for (const auto& queue : queues) {
        for (const QueuedCopy& copy : queue) {
            bytes[{copy.step, copy.link, copy.range.tensor}] += copy.range.size_bytes;
        }
    }
    return bytes;
}

void expect_sorted(const std::vector<std::vector<QueuedCopy>>& queues, SlotIndex end) {
    for (LinkIndex link = 0; link < queues.size(); ++link) {
        SlotIndex last = INT64_MIN;
        for (const QueuedCopy& copy : queues[link]) {
            ASSERT_EQ(copy.link, link);
            ASSERT_GE(copy.slot, last);
            ASSERT_LT(copy.slot, end);
            last = copy.slot;
        }
    }
}

class TransferQueuesOfAPlan : public testing::Test {
   protected:
    TransferQueuesOfAPlan()
        : step_(make_random_step(random_)),
          timeline_(step_.trace, std::vector<std::uint64_t>(step_.trace.kernels().size()),
                    std::max<std::uint64_t>(1, step_.trace.ideal_ns() / 50)) {
        step_.machine.links.resize(std::max<std::size_t>(1, step_.machine.links.size()));
    }

    /// Pieces of one tensor for one gap, which follow each other in bytes and nearly in slots.
    std::vector<PlannedCopy> pieces(GapNumber gap, std::uint64_t count) {
        std::vector<PlannedCopy> made;
        const auto link =
            static_cast<LinkIndex>(between(random_, 0, step_.machine.links.size() - 1));
        auto slot = static_cast<SlotIndex>(
            between(random_, 0, static_cast<std::uint64_t>(timeline_.size() - 1)));
        std::uint64_t offset = 0;
        for (std::uint64_t i = 0; i < count && slot < timeline_.size(); ++i) {
            const std::uint64_t size = between(random_, 1, kLargestCopyBytes);
            made.push_back(
                {{gap, offset, size}, link, gap, slot, 2 * timeline_.size(), 2 * timeline_.size()});
            offset += size;
            slot += static_cast<SlotIndex>(between(random_, 0, 3));
        }
        return made;
    }

    std::mt19937_64 random_ = random_stream(624);
    RandomStep step_;
    PlanTimeline timeline_;
};

TEST_F(TransferQueuesOfAPlan, CarryItsBytesInEveryStep) {
    for (int round = 0; round < 300; ++round) {
        TransferPlan plan;
        std::map<std::pair<LinkIndex, TensorIndex>, std::uint64_t> outs;
        for (GapNumber gap = 0; gap < 8; ++gap) {
            for (const PlannedCopy& each : pieces(gap, between(random_, 0, 6))) {
                plan.outs.push_back(each);
                outs[{each.link, gap}] += each.range.size_bytes;
            }
            const auto ins = pieces(gap, between(random_, 0, 6));
            plan.ins.insert(plan.ins.end(), ins.begin(), ins.end());
        }
        std::shuffle(plan.ins.begin(), plan.ins.end(), random_);
        const TransferQueues queues =
            queue_transfers(plan, step_.machine, timeline_, kSteps, kLargestCopyBytes);
        const SlotIndex end = kSteps * timeline_.size();
        expect_sorted(queues.outs, end);
        expect_sorted(queues.ins, end);
        const BytesOfSteps told = bytes_by_step(queues.outs);
        for (std::int64_t step = -1; step < kSteps; ++step) {
            for (const auto& [of, bytes] : outs) {
                const auto found = told.find({step, of.first, of.second});
                ASSERT_NE(found, told.end());
                ASSERT_EQ(found->second, bytes) << "in step " << step;
            }
        }
        std::set<std::pair<TensorIndex, std::uint64_t>> starts;
        for (const auto& queue : queues.ins) {
            for (const QueuedCopy& copy : queue) {
                ASSERT_LE(copy.range.size_bytes, kLargestCopyBytes);
                if (copy.step != 0) continue;
                const bool is_new =
                    starts.emplace(copy.range.tensor, copy.range.offset_bytes).second;
                ASSERT_TRUE(is_new) << "bytes come back twice in one step";
            }
        }
    }
}

TEST_F(TransferQueuesOfAPlan, GiveUpInEveryStepWhatThePlanDoes) {
    TransferPlan plan;
    plan.drops = {{{0, 0, 7}, 1, timeline_.size() - 1, timeline_.size()}, {{0, 7, 3}, 2, 0, 1}};
    const TransferQueues queues =
        queue_transfers(plan, step_.machine, timeline_, kSteps, kLargestCopyBytes);
    ASSERT_EQ(queues.drops.size(), 2 * kSteps);
    for (std::size_t i = 0; i < queues.drops.size(); ++i) {
        EXPECT_EQ(queues.drops[i].range.size_bytes, i % 2 == 0 ? 3U : 7U);
        EXPECT_EQ(queues.drops[i].slot / timeline_.size(), static_cast<SlotIndex>(i / 2));
    }
}

}  // namespace
}  // namespace frostline
