// Links' time against a plain table of what each resource could still carry.
#include "migration/planning/link_calendar.h"
#include "tests/migration/planning/random_step.h"
#include "tests/tiers/seed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace frostline {
namespace {

class PlainCalendar {
   public:
    PlainCalendar(const Machine& machine, const PlanTimeline& timeline, std::uint32_t steps)
        : machine_(machine), slots_(timeline.size() * steps) {
        for (const MachineResource& each : machine.resources) {
            std::vector<double>& free = free_.emplace_back();
            for (SlotIndex slot = 0; slot < slots_; ++slot) {
                const auto ns =
                    static_cast<double>(timeline.at(slot % timeline.size()).duration_ns);
                free.push_back(ns * each.bytes_per_second / 1e9);
            }
        }
    }

    std::int64_t free_bytes(LinkIndex link, SlotIndex slot) const {
        double least = std::numeric_limits<double>::infinity();
        for (const ResourceIndex each : machine_.links[link].resources) {
            least = std::min(least, free_[each][static_cast<std::size_t>(slot)]);
        }
        return std::max<std::int64_t>(0, static_cast<std::int64_t>(least));
    }
    void take(LinkIndex link, SlotIndex slot, std::int64_t bytes) {
        for (const ResourceIndex each : machine_.links[link].resources) {
            free_[each][static_cast<std::size_t>(slot)] -= static_cast<double>(bytes);
        }
    }
    SlotIndex first_free(LinkIndex link, SlotIndex from) const {
        while (from < slots_ && free_bytes(link, from) == 0) ++from;
        return from;
    }
    SlotIndex last_free(LinkIndex link, SlotIndex from) const {
        while (from >= 0 && free_bytes(link, from) == 0) --from;
        return from;
    }

   private:
    const Machine& machine_;
    SlotIndex slots_;
    std::vector<std::vector<double>> free_;
};

TEST(LinkCalendar, AgreesWithAPlainTable) {
    auto random = random_stream(621);
    int calendars = 0;
    while (calendars < 100) {
        const RandomStep step = make_random_step(random);
        if (step.machine.links.empty() || step.trace.kernels().size() > 20) continue;
        ++calendars;
        const std::vector<std::uint64_t> no_stalls(step.trace.kernels().size());
        const PlanTimeline timeline(step.trace, no_stalls,
                                    std::max<std::uint64_t>(1, step.trace.ideal_ns() / 20));
        PlainCalendar plain(step.machine, timeline, 3);
        LinkCalendar calendar(step.machine, timeline, 3);
        ASSERT_EQ(calendar.size(), timeline.size() * 3);
        for (int i = 0; i < 300; ++i) {
            const auto link =
                static_cast<LinkIndex>(between(random, 0, step.machine.links.size() - 1));
            const auto slot = static_cast<SlotIndex>(
                between(random, 0, static_cast<std::uint64_t>(calendar.size() - 1)));
            const std::int64_t free = calendar.free_bytes(link, slot);
            ASSERT_EQ(free, plain.free_bytes(link, slot));
            ASSERT_EQ(calendar.first_free(link, slot), plain.first_free(link, slot));
            ASSERT_EQ(calendar.last_free(link, slot), plain.last_free(link, slot));
            // All of it, a part, or more than there is.
            const std::int64_t bytes = i % 3 == 0 ? free : i % 3 == 1 ? free / 2 : free + 10;
            calendar.take(link, slot, bytes);
            plain.take(link, slot, bytes);
        }
        for (LinkIndex link = 0; link < step.machine.links.size(); ++link) {
            ASSERT_EQ(calendar.first_free(link, calendar.size()), calendar.size());
            ASSERT_EQ(calendar.last_free(link, -1), -1);
        }
    }
}

}  // namespace
}  // namespace frostline
