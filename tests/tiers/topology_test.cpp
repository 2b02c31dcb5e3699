// Proves what Topology says of machines that are given as text, and that what it says of this one
// agrees with the kernel.
#include "tiers/topology.h"
#include "tests/tiers/faulty_system_calls.h"
#include "tests/tiers/machine_xml.h"
#include "tests/tiers/scratch_folder.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <fstream>
#include <thread>

namespace frostline {
namespace {

namespace fs = std::filesystem;
using Kind = AttachedDevice::Kind;

Topology topology_of(const Topology::Options& options) {
    auto made = Topology::create(options);
    if (!made) {
        ADD_FAILURE() << made.error().message();
        std::abort();
    }
    return *std::move(made);
}

const AttachedDevice* find(const Topology& topology, const std::string& name) {
    for (const AttachedDevice& each : topology.devices()) {
        if (each.name == name) return &each;
    }
    return nullptr;
}

TEST(Topology, ASyntheticMachineHasTheNodesThatWereAskedFor) {
    const auto topology = topology_of({.synthetic = "pack:2 numa:1(memory=2GiB) core:2 pu:2"});
    ASSERT_EQ(topology.nodes().size(), 2U);
    for (int id : {0, 1}) {
        const NumaNode* const node = topology.node(id);
        ASSERT_NE(node, nullptr);
        EXPECT_EQ(node->id, id);
        EXPECT_EQ(node->memory_bytes, std::uint64_t{2} << 30);
        EXPECT_EQ(node->cpus, (id == 0 ? std::vector{0, 1, 2, 3} : std::vector{4, 5, 6, 7}));
        EXPECT_FALSE(node->memory_only());
        EXPECT_EQ(node->cpu_node, id);
    }
    EXPECT_EQ(topology.node(2), nullptr);
    EXPECT_EQ(topology.node(kNoNode), nullptr);
    EXPECT_TRUE(topology.devices().empty());
}

TEST(Topology, MemoryWithoutProcessorsIsToldApartAndHasANearestNode) {
    const auto topology = topology_of({.xml = two_packages_xml()});
    ASSERT_EQ(topology.nodes().size(), 4U);
    const auto& nodes = topology.nodes();
    EXPECT_EQ(nodes[0].cpus, (std::vector{0, 1}));
    EXPECT_EQ(nodes[1].cpus, (std::vector{2, 3}));
    EXPECT_TRUE(nodes[2].memory_only()) << "hwloc lends it the processors of its package";
    EXPECT_TRUE(nodes[3].memory_only());
    for (int id = 0; id < 4; ++id) {
        EXPECT_EQ(nodes[static_cast<std::size_t>(id)].memory_bytes, (id + 1ULL) << 30);
    }
    EXPECT_EQ(nodes[2].cpu_node, 0);
    EXPECT_EQ(nodes[3].cpu_node, 1) << "all are around it; the table of latencies says 1";
}

TEST(Topology, DevicesHangOffTheNodeOfTheirPackage) {
    const auto topology = topology_of({.xml = two_packages_xml()});
    EXPECT_EQ(topology.node_of_device("nvme0n1"), 0)
        << "the memory without processors beside node 0 is not where a disk hangs off";
    EXPECT_EQ(topology.node_of_device("pmem3"), 1);
    EXPECT_EQ(topology.node_of_device("dax2.0"), 1);
    EXPECT_EQ(topology.node_of_device("sda"), kNoNode) << "nobody says where it hangs off";
    EXPECT_EQ(topology.node_of_device("sdb"), kNoNode);
    EXPECT_EQ(topology.node_of_device(""), kNoNode);
    ASSERT_NE(find(topology, "nvme0n1"), nullptr);
    EXPECT_EQ(find(topology, "nvme0n1")->kind, Kind::block);
    EXPECT_EQ(find(topology, "nvme0n1")->pci_address, "0000:02:00.0");
    EXPECT_EQ(find(topology, "pmem3")->kind, Kind::pmem);
    EXPECT_EQ(find(topology, "dax2.0")->kind, Kind::pmem);
    EXPECT_EQ(find(topology, "sda")->pci_address, "");
}

TEST(Topology, AGpuWithSeveralNamesIsListedOnceAndFoundByItsPciAddress) {
    const auto topology = topology_of({.xml = two_packages_xml()});
    std::vector<std::string> gpus;
    for (const AttachedDevice& each : topology.devices()) {
        if (each.kind == Kind::gpu) gpus.push_back(each.name);
    }
    EXPECT_EQ(gpus, (std::vector<std::string>{"cuda0", "0000:82:00.0"}));
    EXPECT_EQ(topology.node_of_device("cuda0"), 1);
    EXPECT_EQ(topology.node_of_device("0000:81:00.0"), 1);
    EXPECT_EQ(topology.node_of_device("0000:82:00.0"), 1);
}

TEST(Topology, TextThatIsNoMachineIsAnError) {
    for (const Topology::Options& options :
         {Topology::Options{.synthetic = "pack:two"}, Topology::Options{.xml = "<topology"}}) {
        const auto made = Topology::create(options);
        ASSERT_FALSE(made.has_value());
        EXPECT_EQ(made.error().code(), Errc::invalid_argument) << made.error().message();
    }
}

// A sysfs of the test's own, in which the scratch folder's device is what the test says.
class FakeSysfs {
   public:
    explicit FakeSysfs(const std::string& file) {
        struct stat status {};
        EXPECT_EQ(::stat(file.c_str(), &status), 0);
        link_ = root() + "/dev/block/" + std::to_string(major(status.st_dev)) + ":" +
                std::to_string(minor(status.st_dev));
        fs::create_directories(root() + "/dev/block");
    }
    const std::string& root() const { return folder_.path(); }
    std::string device(const std::string& path) const {
        fs::create_directories(folder_.file(path));
        return folder_.file(path);
    }
    void file_lies_on(const std::string& directory) const {
        fs::remove(link_);
        fs::create_symlink(directory, link_);
    }

   private:
    ScratchFolder folder_;
    std::string link_;
};

TEST(Topology, AFileHangsOffWhereItsDiskDoes) {
    const ScratchFolder folder;
    const FakeSysfs sysfs(folder.path());
    const auto topology = topology_of({.xml = two_packages_xml(), .sysfs = sysfs.root()});
    const auto node = [&] { return *topology.node_of_path(folder.path()); };
    EXPECT_EQ(node(), kNoNode) << "no device is behind it";

    sysfs.file_lies_on(sysfs.device("devices/nvme0n1"));
    EXPECT_EQ(node(), 0);

    const std::string partition = sysfs.device("devices/pmem3/pmem3p1");
    std::ofstream(partition + "/partition") << "1\n";
    sysfs.file_lies_on(partition);
    EXPECT_EQ(node(), 1) << "a partition is where its disk is";

    sysfs.file_lies_on(sysfs.device("devices/unheard_of"));
    EXPECT_EQ(node(), kNoNode);
}

TEST(Topology, AMappedDeviceHangsOffWhereAllItsPartsDo) {
    const ScratchFolder folder;
    const FakeSysfs sysfs(folder.path());
    const auto topology = topology_of({.xml = two_packages_xml(), .sysfs = sysfs.root()});
    const std::string mapped = sysfs.device("devices/dm-0");
    const std::string slaves = sysfs.device("devices/dm-0/slaves");
    sysfs.file_lies_on(mapped);
    EXPECT_EQ(*topology.node_of_path(folder.path()), kNoNode);
    fs::create_symlink(sysfs.device("devices/pmem3"), slaves + "/pmem3");
    EXPECT_EQ(*topology.node_of_path(folder.path()), 1);
    fs::create_symlink(sysfs.device("devices/dax2.0"), slaves + "/dax2.0");
    EXPECT_EQ(*topology.node_of_path(folder.path()), 1);
    fs::create_symlink(sysfs.device("devices/nvme0n1"), slaves + "/nvme0n1");
    EXPECT_EQ(*topology.node_of_path(folder.path()), kNoNode) << "it is striped over two nodes";
    fs::remove(slaves + "/nvme0n1");
    fs::create_symlink(mapped, slaves + "/dm-0");
    EXPECT_EQ(*topology.node_of_path(folder.path()), kNoNode) << "it is made of itself";
}

TEST(Topology, APathThatCannotBeLookedAtIsAnError) {
    const auto topology = topology_of({.calls = &faulty_system_calls()});
    const auto missing = topology.node_of_path("/no/such/file");
    ASSERT_FALSE(missing.has_value());
    EXPECT_EQ(missing.error().code(), Errc::not_found);
    EXPECT_NE(std::string(missing.error().message()).find("/no/such/file"), std::string::npos);
    for (const Call call : {Call::open, Call::fstat}) {
        const FaultInjection fault({.call = call, .error = EACCES});
        const auto refused = topology.node_of_path("/");
        ASSERT_FALSE(refused.has_value());
        EXPECT_EQ(refused.error().code(), Errc::permission);
    }
    EXPECT_EQ(*topology.node_of_path("/proc/self"), kNoNode);
    EXPECT_EQ(*topology.node_of_path("/dev/null"), kNoNode);
}

// What the kernel lists, as "0-1,3".
std::vector<int> listed(const std::string& path) {
    std::ifstream file(path);
    std::vector<int> all;
    int first = 0;
    while (file >> first) {
        int last = first;
        if (file.peek() == '-') file.get() && file >> last;
        for (int each = first; each <= last; ++each) all.push_back(each);
        file.get();
    }
    return all;
}

std::vector<int> allowed_cpus() {
    cpu_set_t set;
    EXPECT_EQ(::sched_getaffinity(0, sizeof set, &set), 0);
    std::vector<int> cpus;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (CPU_ISSET(static_cast<std::size_t>(cpu), &set)) cpus.push_back(cpu);
    }
    return cpus;
}

TEST(TopologyNuma, ThisMachineIsWhatTheKernelSays) {
    const auto topology = topology_of({});
    std::vector<int> ids;
    for (const NumaNode& each : topology.nodes()) {
        ids.push_back(each.id);
        const std::string path = "/sys/devices/system/node/node" + std::to_string(each.id);
        EXPECT_EQ(each.cpus, listed(path + "/cpulist"));
    }
    EXPECT_EQ(ids, listed("/sys/devices/system/node/online"));
}

TEST(TopologyNuma, AThreadRunsOnTheProcessorsOfTheNodeItIsBoundTo) {
    const auto topology = topology_of({});
    for (const NumaNode& each : topology.nodes()) {
        std::thread([&] {
            const auto bound = topology.bind_current_thread(each.id);
            ASSERT_TRUE(bound.has_value()) << bound.error().message();
            EXPECT_EQ(allowed_cpus(), topology.node(each.cpu_node)->cpus) << "node " << each.id;
        }).join();
    }
}

TEST(Topology, AThreadThatCannotBeBoundStaysWhereItWas) {
    const auto real = topology_of({.calls = &faulty_system_calls()});
    const auto before = allowed_cpus();
    EXPECT_EQ(real.bind_current_thread(4711).error().code(), Errc::invalid_argument);
    EXPECT_EQ(real.bind_current_thread(kNoNode).error().code(), Errc::invalid_argument);
    {
        const FaultInjection fault({.call = Call::sched_setaffinity, .error = EPERM});
        const auto refused = real.bind_current_thread(real.nodes().front().id);
        ASSERT_FALSE(refused.has_value());
        EXPECT_EQ(refused.error().code(), Errc::permission);
    }
    const auto foreign = topology_of({.xml = two_packages_xml()});
    EXPECT_EQ(foreign.bind_current_thread(0).error().code(), Errc::unsupported);
    EXPECT_EQ(allowed_cpus(), before);
}

}  // namespace
}  // namespace frostline
