// Proves when simulated copies start and end: one at a time on a link, the urgent first, at what
// others leave of the bandwidth.
#include "migration/planning/simulated_links.h"

#include "tests/migration/planning/random_training.h"
#include "tests/tiers/seed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <vector>

namespace frostline {

bool operator==(const EndedCopy& a, const EndedCopy& b) {
    return a.tensor == b.tensor && a.link == b.link && a.start_ns == b.start_ns &&
           a.end_ns == b.end_ns;
}
std::ostream& operator<<(std::ostream& out, const EndedCopy& copy) {
    return out << "tensor " << copy.tensor << " on link " << copy.link << " " << copy.start_ns
               << ".." << copy.end_ns;
}

namespace {

using Urgency = SimulatedLinks::Urgency;
using testing::ElementsAre;

// Links of machine_with(): out to the first tier below, back from it, out to the second, back.
constexpr std::size_t kOut = 0;
constexpr std::size_t kIn = 1;
constexpr std::size_t kSlowOut = 2;

std::vector<EndedCopy> run(SimulatedLinks& links, std::uint64_t now_ns = 0) {
    std::vector<EndedCopy> all;
    links.start(now_ns);
    while (const auto next_ns = links.next_end_ns()) {
        while (const auto ended = links.take_ended(*next_ns)) all.push_back(*ended);
        links.start(*next_ns);
    }
    EXPECT_TRUE(links.idle());
    return all;
}

TEST(SimulatedLinks, ServesOneCopyAfterAnotherAtFullRate) {
    Machine machine = machine_with(100, 2e9, {1e9});
    machine.links[kOut].latency_ns = 7;
    SimulatedLinks links(machine, 3);
    links.submit(0, kOut, 100, Urgency::eviction);
    links.submit(1, kOut, 50, Urgency::eviction);
    links.submit(2, kIn, 30, Urgency::prefetch);
    EXPECT_THAT(run(links), ElementsAre(EndedCopy{2, kIn, 0, 30}, EndedCopy{0, kOut, 0, 107},
                                        EndedCopy{1, kOut, 107, 164}));
}

TEST(SimulatedLinks, ServesTheUrgentFirst) {
    const Machine machine = machine_with(100, 1e9, {1e9});
    SimulatedLinks links(machine, 4);
    links.submit(0, kIn, 10, Urgency::prefetch);
    links.submit(1, kIn, 10, Urgency::prefetch);
    links.submit(2, kIn, 10, Urgency::prefetch);
    links.submit(3, kIn, 10, Urgency::demand);
    links.raise(2);
    EXPECT_THAT(run(links, 5), ElementsAre(EndedCopy{2, kIn, 5, 15}, EndedCopy{3, kIn, 15, 25},
                                           EndedCopy{0, kIn, 25, 35}, EndedCopy{1, kIn, 35, 45}));
}

// A disk of a quarter of the bus leaves three quarters of it to others.
TEST(SimulatedLinks, SharesABusWithASlowDisk) {
    const Machine machine = machine_with(100, 4e9, {4e9, 1e9});
    SimulatedLinks links(machine, 3);
    links.submit(0, kSlowOut, 120, Urgency::eviction);
    links.submit(1, kOut, 120, Urgency::eviction);
    EXPECT_THAT(run(links), ElementsAre(EndedCopy{1, kOut, 0, 40}, EndedCopy{0, kSlowOut, 0, 120}));
    // With the whole bus taken, the disk waits for its turn.
    links.submit(1, kOut, 120, Urgency::eviction);
    links.submit(0, kSlowOut, 120, Urgency::eviction);
    links.submit(2, kOut, 120, Urgency::eviction);
    EXPECT_THAT(run(links, 200),
                ElementsAre(EndedCopy{1, kOut, 200, 230}, EndedCopy{2, kOut, 230, 270},
                            EndedCopy{0, kSlowOut, 230, 350}));
}

TEST(SimulatedLinks, ForgetsWhatIsCancelled) {
    const Machine machine = machine_with(100, 1e9, {1e9});
    SimulatedLinks links(machine, 3);
    for (const TensorIndex tensor : {0U, 1U, 2U}) {
        links.submit(tensor, kOut, 100, Urgency::eviction);
    }
    links.start(0);
    links.cancel(0);  // under way
    links.cancel(1);  // waiting
    links.cancel(1);  // twice is no mistake
    EXPECT_THAT(run(links, 10), ElementsAre(EndedCopy{2, kOut, 10, 110}));
}

TEST(SimulatedLinks, NeverLoadsAResourceBeyondItsBandwidth) {
    auto random = random_stream(10);
    for (int round = 0; round < 100; ++round) {
        const auto rate = [&] { return static_cast<double>(between(random, 1, 1000)) * 1e7; };
        Machine machine = machine_with(100, rate(), {rate(), rate(), rate()});
        for (MachineLink& link : machine.links) link.latency_ns = between(random, 0, 50);
        std::vector<std::uint64_t> sizes(40);
        SimulatedLinks links(machine, sizes.size());
        for (TensorIndex tensor = 0; tensor < sizes.size(); ++tensor) {
            sizes[tensor] = between(random, 1, 5000);
            links.submit(tensor, between(random, 0, machine.links.size() - 1), sizes[tensor],
                         static_cast<Urgency>(between(random, 0, 2)));
        }
        const std::vector<EndedCopy> copies = run(links);
        ASSERT_EQ(copies.size(), sizes.size());
        // The load only grows where a copy starts.
        for (const EndedCopy& moment : copies) {
            std::vector<double> load(machine.resources.size());
            for (const EndedCopy& copy : copies) {
                if (copy.start_ns > moment.start_ns || copy.end_ns <= moment.start_ns) continue;
                const MachineLink& link = machine.links[copy.link];
                const auto busy_ns = copy.end_ns - copy.start_ns - link.latency_ns;
                for (const ResourceIndex resource : link.resources) {
                    load[resource] += static_cast<double>(sizes[copy.tensor]) * 1e9 /
                                      static_cast<double>(busy_ns);
                }
            }
            for (std::size_t i = 0; i < load.size(); ++i) {
                ASSERT_LE(load[i], machine.resources[i].bytes_per_second * (1 + 1e-9));
            }
        }
    }
}

}  // namespace
}  // namespace frostline
