// Slots of a step cover it without a gap, and each knows whose it is.
#include "migration/planning/plan_timeline.h"
#include "tests/migration/planning/random_step.h"
#include "tests/tiers/seed.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace frostline {
namespace {

TEST(PlanTimeline, CoversEveryKernelAndEveryStall) {
    auto random = random_stream(622);
    for (int round = 0; round < 300; ++round) {
        const RandomStep step = make_random_step(random);
        const auto kernels = static_cast<KernelIndex>(step.trace.kernels().size());
        std::vector<std::uint64_t> stalls(kernels);
        for (std::uint64_t& each : stalls) each = between(random, 0, 1) * between(random, 0, 1000);
        const std::uint64_t longest_ns =
            std::max<std::uint64_t>(1, step.trace.ideal_ns() / between(random, 1, 100));
        for (std::uint64_t& each : stalls) each = std::min(each, 100 * longest_ns);
        const PlanTimeline timeline(step.trace, stalls, longest_ns);
        SlotIndex next = 0;
        for (KernelIndex kernel = 0; kernel < kernels; ++kernel) {
            ASSERT_EQ(timeline.first_slot(kernel), next);
            for (const bool is_stall : {true, false}) {
                const std::uint64_t wanted_ns =
                    is_stall ? stalls[kernel] : step.trace.kernels()[kernel].duration_ns;
                if (!is_stall) {
                    ASSERT_EQ(timeline.kernel_slot(kernel), next);
                }
                std::uint64_t covered_ns = 0;
                for (; next < timeline.size() && timeline.at(next).kernel == kernel &&
                       timeline.at(next).is_stall == is_stall;
                     ++next) {
                    ASSERT_EQ(timeline.at(next).offset_ns, covered_ns);
                    ASSERT_LE(timeline.at(next).duration_ns, longest_ns);
                    ASSERT_EQ(timeline.begins_gap(next), next == timeline.first_slot(kernel));
                    covered_ns += timeline.at(next).duration_ns;
                }
                ASSERT_EQ(covered_ns, wanted_ns);
            }
            ASSERT_EQ(timeline.end_slot(kernel), next);
            ASSERT_LT(timeline.kernel_slot(kernel), next) << "a kernel without a slot";
        }
        ASSERT_EQ(timeline.size(), next);
    }
}

}  // namespace
}  // namespace frostline
