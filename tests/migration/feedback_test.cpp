// Proves the two small feedback rules: the prefetch window grows at once, shrinks slowly and stays
// within its bounds; the timeline stays bounded and in order however long it runs.
#include "migration/prefetch_window.h"
#include "migration/usage_timeline.h"

#include <gtest/gtest.h>

namespace frostline {
namespace {

constexpr std::uint64_t kGi = std::uint64_t{1} << 30;

TEST(PrefetchWindow, starts_at_a_quarter) {
    EXPECT_EQ(PrefetchWindow(kGi).bytes(), kGi / 4);
}

TEST(PrefetchWindow, doubles_with_a_stall_up_to_the_limit) {
    PrefetchWindow window(kGi);
    window.stalled();
    EXPECT_EQ(window.bytes(), kGi / 2);
    window.stalled();
    EXPECT_EQ(window.bytes(), kGi);
    window.stalled();
    EXPECT_EQ(window.bytes(), kGi);
}

TEST(PrefetchWindow, shrinks_slowly_with_hits_down_to_the_smallest) {
    PrefetchWindow window(kGi);
    window.hit();
    EXPECT_EQ(window.bytes(), kGi / 4 - kGi / 4 / PrefetchWindow::kShrinkDivisor);
    int hits = 1;
    for (std::uint64_t before = 0; before != window.bytes(); ++hits) {
        before = window.bytes();
        window.hit();
        EXPECT_LE(window.bytes(), before);
    }
    EXPECT_EQ(window.bytes(), PrefetchWindow::kSmallestBytes);
    EXPECT_GT(hits, 100) << "a few hits must not undo a stall";
}

TEST(PrefetchWindow, never_exceeds_a_small_budget) {
    for (const std::uint64_t limit : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{4096},
                                      PrefetchWindow::kSmallestBytes - 1}) {
        PrefetchWindow window(limit);
        EXPECT_EQ(window.bytes(), limit);
        window.stalled();
        EXPECT_EQ(window.bytes(), limit);
        window.hit();
        EXPECT_EQ(window.bytes(), limit);
    }
}

TEST(UsageTimeline, takes_the_first_sample_and_then_one_for_each_interval) {
    UsageTimeline timeline;
    EXPECT_TRUE(timeline.samples().empty());
    EXPECT_TRUE(timeline.due(0));
    timeline.add({0, {}});
    EXPECT_FALSE(timeline.due(UsageTimeline::kFirstIntervalNs - 1));
    EXPECT_TRUE(timeline.due(UsageTimeline::kFirstIntervalNs));
}

TEST(UsageTimeline, stays_bounded_in_order_and_evenly_spread) {
    UsageTimeline timeline;
    std::uint64_t offered = 0;
    for (std::uint64_t now = 7; offered < 10 * UsageTimeline::kMaxSamples; ++offered) {
        if (timeline.due(now)) {
            UsageTimeline::Sample sample{now, {}};
            sample.used_bytes[1] = now * 3;
            timeline.add(sample);
        }
        now += UsageTimeline::kFirstIntervalNs;
    }
    const auto& samples = timeline.samples();
    EXPECT_LE(samples.size(), UsageTimeline::kMaxSamples);
    EXPECT_GE(samples.size(), UsageTimeline::kMaxSamples / 2) << "more was thrown away than needed";
    EXPECT_EQ(samples.front().time_ns, 7U) << "the beginning is part of the picture";
    const std::uint64_t gap = samples[1].time_ns - samples[0].time_ns;
    EXPECT_EQ(gap, 16 * UsageTimeline::kFirstIntervalNs) << "thinned four times";
    for (std::size_t i = 0; i < samples.size(); ++i) {
        EXPECT_EQ(samples[i].used_bytes[1], samples[i].time_ns * 3) << "a sample was torn apart";
        if (i == 0) continue;
        const std::uint64_t step = samples[i].time_ns - samples[i - 1].time_ns;
        EXPECT_TRUE(step == gap || step == gap / 2) << "at " << i << ": " << step;
    }
    EXPECT_GE(samples.back().time_ns + gap, offered * UsageTimeline::kFirstIntervalNs)
        << "the end is part of the picture";
}

}  // namespace
}  // namespace frostline
