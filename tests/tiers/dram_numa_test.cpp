// Proves where a DRAM tier's pages lie: on this machine by asking its kernel, on machines with
// several nodes by a kernel that is played here. DramNuma.* is worth running on a real one.
#include "tests/tiers/machine_xml.h"
#include "tests/tiers/process_state.h"
#include "tests/tiers/tier_specimen.h"

#include <gtest/gtest.h>
#include <numaif.h>

#include <map>
#include <set>
#include <thread>

namespace frostline {
namespace {

using Mode = NumaPlacement::Mode;
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

std::unique_ptr<DramTier> make(const DramTier::Options& options) {
    auto made = DramTier::create(options);
    if (!made) {
        ADD_FAILURE() << made.error().message();
        std::abort();
    }
    return *std::move(made);
}

void touch(const DramTier& tier, const Extent& extent) {
    std::memset(tier.address(extent), 0x77, extent.length_bytes);
}

Placement placement(const DramTier& tier, const Extent& extent) {
    const auto placed = tier.placement(extent);
    EXPECT_TRUE(placed.has_value()) << placed.error().message();
    return placed.value_or(Placement{});
}

std::unique_ptr<DramTier> placed(Mode mode, const std::vector<int>& nodes) {
    return make({.capacity_bytes = 16 * kMiB, .numa = {mode, nodes}, .topology = &this_machine()});
}

TEST(DramNuma, BoundPagesLieOnTheirNode) {
    for (const int node : nodes_with_memory()) {
        for (const std::uint64_t size : {5000 + 0 * kMiB, 3 * kMiB}) {
            const auto tier = placed(Mode::bind, {node});
            EXPECT_EQ(tier->info().fallback, "");
            EXPECT_EQ(tier->info().numa_node, node);
            EXPECT_NE(tier->info().access.find("bound to NUMA nodes " + std::to_string(node)),
                      std::string::npos);
            const auto extent = tier->reserve(size);
            ASSERT_TRUE(extent.has_value()) << extent.error().message();
            EXPECT_EQ(placement(*tier, *extent).untouched_bytes, size);
            touch(*tier, *extent);
            EXPECT_EQ(placement(*tier, *extent).bytes_on(node), size);
            tier->release(*extent);
            EXPECT_EQ(tier->misplaced_bytes(), 0U);
            EXPECT_EQ(tier->cached_bytes(), round_up_to_page(size));
        }
    }
}

TEST(DramNuma, MemoryBoundToSeveralNodesLiesOnThese) {
    const std::vector<int> nodes = nodes_with_memory();
    const auto tier = placed(Mode::bind, nodes);
    EXPECT_EQ(tier->info().numa_node, nodes.size() == 1 ? nodes.front() : kNoNode);
    std::vector<Extent> extents;
    std::set<int> seen;
    while (const auto extent = tier->reserve(kMiB)) {
        touch(*tier, *extent);
        const Placement where = placement(*tier, *extent);
        std::uint64_t bytes = 0;
        for (const int node : nodes) {
            bytes += where.bytes_on(node);
            if (where.bytes_on(node) == kMiB) seen.insert(node);
        }
        EXPECT_EQ(bytes, kMiB);
        extents.push_back(*extent);
    }
    EXPECT_EQ(extents.size(), 16U) << "the whole budget could be used";
    EXPECT_EQ(seen.size(), nodes.size()) << "each node has a share of it";
    for (const Extent& each : extents) tier->release(each);
    EXPECT_EQ(tier->misplaced_bytes(), 0U);
}

TEST(DramNuma, ExtentsComeFromTheNodeThatTheirUserRunsOn) {
    for (const NumaNode& each : this_machine().nodes()) {
        if (each.memory_only() || each.memory_bytes == 0) continue;
        const auto tier = placed(Mode::bind, nodes_with_memory());
        std::thread([&] {
            ASSERT_TRUE(this_machine().bind_current_thread(each.id).has_value());
            const auto extent = tier->reserve(kMiB);
            ASSERT_TRUE(extent.has_value());
            touch(*tier, *extent);
            EXPECT_EQ(placement(*tier, *extent).bytes_on(each.id), kMiB);
        }).join();
    }
}

TEST(DramNuma, PreferredPagesLieOnThatNodeWhileItHasRoom) {
    for (const int node : nodes_with_memory()) {
        const auto tier = placed(Mode::preferred, {node});
        EXPECT_EQ(tier->info().fallback, "");
        EXPECT_EQ(tier->info().numa_node, node);
        const auto extent = tier->reserve(4 * kMiB);
        touch(*tier, *extent);
        EXPECT_EQ(placement(*tier, *extent).bytes_on(node), 4 * kMiB);
    }
}

TEST(DramNuma, InterleavedPagesLieOnAllNodesAlike) {
    const std::vector<int> nodes = nodes_with_memory();
    const auto tier = placed(Mode::interleave, nodes);
    EXPECT_EQ(tier->info().fallback, "");
    const auto extent = tier->reserve(kMiB);  // in small pages: a huge one is on one node
    touch(*tier, *extent);
    const Placement where = placement(*tier, *extent);
    for (const int node : nodes) {
        EXPECT_NEAR(static_cast<double>(where.bytes_on(node)),
                    static_cast<double>(kMiB) / static_cast<double>(nodes.size()), kPageBytes);
    }
}

TEST(DramNuma, AMemoryOnlyNodeIsATierOfItsOwn) {
    for (const NumaNode& each : this_machine().nodes()) {
        if (!each.memory_only() || each.memory_bytes == 0) continue;
        const auto tier = placed(Mode::bind, {each.id});
        const auto extent = tier->reserve(kMiB);
        ASSERT_TRUE(extent.has_value());
        touch(*tier, *extent);
        EXPECT_EQ(placement(*tier, *extent).bytes_on(each.id), kMiB);
    }
}

TEST(DramNuma, AdoptedBuffersArePlacedWhereTheyAre) {
    const auto tier = placed(Mode::none, {});
    Bytes buffer(12345, std::byte{1});
    const auto extent = tier->adopt(buffer, {[](void*, std::byte*, std::uint64_t) {}, nullptr});
    std::uint64_t bytes = 0;
    for (const auto& [node, on_it] : placement(*tier, *extent).bytes_by_node) bytes += on_it;
    EXPECT_EQ(bytes, 12345U) << "exactly its bytes, although it fills no whole pages";
    tier->cancel_adoption(*extent);
}

TEST(DramNuma, NodesThatCannotBeUsedAreRefusedAndTheOthersNamed) {
    const int front = nodes_with_memory().front();
    const auto error = [](const NumaPlacement& numa, std::uint64_t capacity = kMiB) {
        const auto made = DramTier::create(
            {.capacity_bytes = capacity, .numa = numa, .topology = &this_machine()});
        EXPECT_FALSE(made.has_value());
        if (made) return std::string();
        EXPECT_EQ(made.error().code(), Errc::invalid_argument) << made.error().message();
        return std::string(made.error().message());
    };
    for (const Mode mode : {Mode::bind, Mode::preferred, Mode::interleave}) {
        EXPECT_NE(error({mode, {777}}).find("it has: " + list_of(nodes_with_memory())),
                  std::string::npos);
        EXPECT_NE(error({mode, {}}), "");
        EXPECT_NE(error({mode, {-1}}), "");
    }
    EXPECT_NE(error({Mode::bind, {front, front}}).find("twice"), std::string::npos);
    EXPECT_NE(error({Mode::preferred, {front, front}}), "");
    EXPECT_NE(error({Mode::none, {front}}), "");
    EXPECT_NE(error({Mode::bind, {front}}, std::uint64_t{1} << 60).find("budget"),
              std::string::npos);
}

TEST(DramNuma, WithoutPermissionToBindItWorksUnboundAndSaysSo) {
    for (const int error : {EPERM, ENOSYS}) {
        const FaultInjection fault({.call = Call::mbind, .error = error, .from_then_on = true});
        const auto tier = make({.capacity_bytes = kMiB,
                                .calls = &faulty_system_calls(),
                                .numa = {Mode::bind, nodes_with_memory()},
                                .topology = &this_machine()});
        EXPECT_NE(tier->info().fallback.find(std::strerror(error)), std::string::npos);
        EXPECT_EQ(tier->info().access.find("bound"), std::string::npos);
        EXPECT_TRUE(tier->reserve(kMiB).has_value());
    }
}

TEST(DramNuma, AKernelThatDoesNotSayWherePagesLieIsAnErrorOnlyForWhoAsks) {
    const auto tier = make({.capacity_bytes = kMiB,
                            .calls = &faulty_system_calls(),
                            .numa = {Mode::bind, nodes_with_memory()},
                            .topology = &this_machine()});
    const auto extent = tier->reserve(kMiB);
    const FaultInjection fault({.call = Call::move_pages, .error = EPERM, .from_then_on = true});
    EXPECT_EQ(tier->placement(*extent).error().code(), Errc::permission);
    tier->release(*extent);
    EXPECT_EQ(tier->cached_bytes(), kMiB);
}

// A kernel with as many nodes as the test likes: it remembers policies, and says that pages lie
// where these want them, except where the test has misplaced them.
struct PlayedKernel {
    struct Policy {
        int mode = MPOL_DEFAULT;
        unsigned long nodes = 0;
    };
    std::map<std::uint64_t, std::pair<std::uint64_t, Policy>> policies;  // end, by start
    std::map<std::uint64_t, int> misplaced;                              // node by page
    unsigned cpu_node = 0;
    int questions = 0;
    int pages_asked = 0;

    Policy policy_of(std::uint64_t address) const {
        for (const auto& [start, rest] : policies) {
            if (start <= address && address < rest.first) return rest.second;
        }
        return {};
    }
    int node_of(std::uint64_t page) const {
        if (const auto found = misplaced.find(page); found != misplaced.end()) {
            return found->second;
        }
        const unsigned long nodes = policy_of(page).nodes;
        return nodes == 0 ? 0 : __builtin_ctzl(nodes);
    }
};
PlayedKernel kernel;

const SystemCalls& played_calls() {
    static const SystemCalls calls = [] {
        SystemCalls table = SystemCalls::real();
        table.mbind = [](void* address, unsigned long length, int mode, const unsigned long* nodes,
                         unsigned long, unsigned) {
            const auto start = reinterpret_cast<std::uint64_t>(address);
            kernel.policies[start] = {start + length, {mode, nodes == nullptr ? 0 : *nodes}};
            return 0L;
        };
        table.move_pages = [](int, unsigned long count, void** pages, const int* nodes, int* status,
                              int) {
            EXPECT_EQ(nodes, nullptr) << "pages are asked for, not moved";
            ++kernel.questions;
            kernel.pages_asked += static_cast<int>(count);
            for (unsigned long i = 0; i < count; ++i) {
                status[i] = kernel.node_of(reinterpret_cast<std::uint64_t>(pages[i]));
            }
            return 0L;
        };
        table.getcpu = [](unsigned* cpu, unsigned* node) {
            *cpu = 0;
            *node = kernel.cpu_node;
            return 0;
        };
        return table;
    }();
    return calls;
}

// A machine of nodes 0 and 1 with 1 GiB each.
class DramOnTwoNodes : public testing::Test {
   protected:
    DramOnTwoNodes() { kernel = {}; }

    std::unique_ptr<DramTier> tier(Mode mode, const std::vector<int>& nodes,
                                   std::uint64_t capacity_bytes = 16 * kMiB) {
        return make({.capacity_bytes = capacity_bytes,
                     .calls = &played_calls(),
                     .numa = {mode, nodes},
                     .topology = &topology_});
    }
    static PlayedKernel::Policy policy_of(const Extent& extent) {
        return kernel.policy_of(extent.offset);
    }

    Topology topology_ = *Topology::create({.synthetic = "pack:2 numa:1(memory=1GiB) core:1 pu:1"});
};

TEST_F(DramOnTwoNodes, BoundExtentsComeFromTheCallersNodeUntilItsShareIsUsed) {
    const auto tier = this->tier(Mode::bind, {0, 1});
    EXPECT_EQ(tier->info().numa_node, kNoNode);
    for (const unsigned node : {1U, 0U}) {
        kernel.cpu_node = node;
        const auto extent = tier->reserve(4 * kMiB);
        EXPECT_EQ(policy_of(*extent).mode, MPOL_BIND);
        EXPECT_EQ(policy_of(*extent).nodes, 1UL << node);
    }
    // Each share is 8 MiB: 4 more fit on node 1, 4 spill to node 0, and then none is left.
    kernel.cpu_node = 1;
    for (const unsigned node : {1U, 0U}) {
        EXPECT_EQ(policy_of(*tier->reserve(4 * kMiB)).nodes, 1UL << node);
    }
    EXPECT_EQ(tier->reserve(1).error().code(), Errc::no_space);
}

TEST_F(DramOnTwoNodes, AnExtentLargerThanAShareLiesOnBoth) {
    const auto tier = this->tier(Mode::bind, {0, 1});
    const auto extent = tier->reserve(16 * kMiB);
    ASSERT_TRUE(extent.has_value()) << extent.error().message();
    EXPECT_EQ(policy_of(*extent).mode, MPOL_BIND);
    EXPECT_EQ(policy_of(*extent).nodes, 3UL);
    tier->release(*extent);
    EXPECT_EQ(policy_of(*tier->reserve(kMiB)).nodes, 1UL) << "and small ones on their node again";
}

TEST_F(DramOnTwoNodes, AllModesAreWhatTheKernelIsTold) {
    for (const auto& [mode, policy] : {std::pair(Mode::preferred, MPOL_PREFERRED),
                                       std::pair(Mode::interleave, MPOL_INTERLEAVE)}) {
        kernel = {};
        const std::vector<int> nodes = mode == Mode::preferred ? std::vector{1} : std::vector{0, 1};
        const auto tier = this->tier(mode, nodes);
        const auto extent = tier->reserve(kMiB);
        EXPECT_EQ(policy_of(*extent).mode, policy);
        EXPECT_EQ(policy_of(*extent).nodes, mode == Mode::preferred ? 2UL : 3UL);
    }
    kernel = {};
    (void)this->tier(Mode::none, {});
    EXPECT_TRUE(kernel.policies.empty());
}

TEST_F(DramOnTwoNodes, MisplacedPagesAreNotKeptForTheNextExtent) {
    const auto tier = this->tier(Mode::bind, {1});
    const auto extent = tier->reserve(8 * kPageBytes);
    touch(*tier, *extent);
    // The first page is a sample; with it astray all are looked at, and three are.
    for (const std::uint64_t page : {0U, 1U, 5U}) {
        kernel.misplaced[extent->offset + page * kPageBytes] = 0;
    }
    const std::byte* const address = tier->address(*extent);
    tier->release(*extent);
    EXPECT_EQ(tier->misplaced_bytes(), 3 * kPageBytes);
    EXPECT_EQ(tier->cached_bytes(), 5 * kPageBytes);
    EXPECT_EQ(resident_bytes(address, 8 * kPageBytes), 5 * kPageBytes) << "what is counted is so";
    // The books are right: the whole budget can be had.
    EXPECT_TRUE(tier->reserve(16 * kMiB).has_value());
}

TEST_F(DramOnTwoNodes, PagesThatLieWellCostOneQuestion) {
    const auto tier = this->tier(Mode::bind, {1});
    const auto extent = tier->reserve(4 * kMiB);
    tier->release(*extent);
    EXPECT_EQ(kernel.questions, 1);
    EXPECT_LE(kernel.pages_asked, 4);
    EXPECT_EQ(tier->cached_bytes(), 4 * kMiB);
    EXPECT_EQ(tier->misplaced_bytes(), 0U);
}

TEST_F(DramOnTwoNodes, AnOddPageAtEitherEndIsSeen) {
    for (const std::uint64_t page : {0U, 99U}) {
        const auto tier = this->tier(Mode::bind, {1});
        const auto extent = tier->reserve(100 * kPageBytes);
        kernel.misplaced = {{extent->offset + page * kPageBytes, 0}};
        tier->release(*extent);
        EXPECT_EQ(tier->misplaced_bytes(), kPageBytes) << page;
    }
}

TEST_F(DramOnTwoNodes, UnboundMemoryIsNotLookedAt) {
    const auto tier = this->tier(Mode::none, {});
    tier->release(*tier->reserve(kMiB));
    EXPECT_EQ(kernel.questions, 0);
}

TEST(DramOnFourNodes, ATierOfMemoryWithoutProcessorsHasItsNodeOnItsCard) {
    kernel = {};
    const auto topology = *Topology::create({.xml = two_packages_xml()});
    for (const int node : {2, 3}) {
        ASSERT_TRUE(topology.node(node)->memory_only());
        const auto tier = make({.capacity_bytes = kMiB,
                                .calls = &played_calls(),
                                .numa = {Mode::bind, {node}},
                                .topology = &topology});
        EXPECT_EQ(tier->info().kind, TierKind::dram);
        EXPECT_EQ(tier->info().numa_node, node);
        const auto extent = tier->reserve(1);
        EXPECT_EQ(kernel.policy_of(extent->offset).nodes, 1UL << node);
    }
}

}  // namespace
}  // namespace frostline
