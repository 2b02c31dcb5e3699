// What hwloc found is copied into plain values; its handle does not outlive create().
#include "tiers/topology.h"

#include "tiers/file_descriptor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <hwloc.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <memory>
#include <new>
#include <type_traits>

namespace frostline {
namespace {

namespace fs = std::filesystem;

struct DestroyTopology {
    void operator()(hwloc_topology_t topology) const noexcept { hwloc_topology_destroy(topology); }
};
using Hwloc = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, DestroyTopology>;

Result<Hwloc> discover(const Topology::Options& options) {
    hwloc_topology_t made = nullptr;
    if (hwloc_topology_init(&made) != 0) {
        return system_error(errno, "topology: hwloc does not start");
    }
    Hwloc hwloc(made);
    // Only devices that one can hang something off: no bridges, no virtual devices.
    (void)hwloc_topology_set_io_types_filter(hwloc.get(), HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    const bool synthetic = !options.synthetic.empty();
    int done = 0;
    if (synthetic) done = hwloc_topology_set_synthetic(hwloc.get(), options.synthetic.c_str());
    if (!options.xml.empty()) {
        const int size = static_cast<int>(options.xml.size()) + 1;
        done = hwloc_topology_set_xmlbuffer(hwloc.get(), options.xml.c_str(), size);
    }
    if (done == 0) done = hwloc_topology_load(hwloc.get());
    if (done != 0) {
        const bool injected = synthetic || !options.xml.empty();
        return Error(injected ? Errc::invalid_argument : Errc::unsupported, errno,
                     "topology: hwloc cannot read {}",
                     synthetic  ? "the synthetic machine"
                     : injected ? "the XML of a machine"
                                : "this machine");
    }
    return hwloc;
}

hwloc_obj_t numa_object(hwloc_topology_t hwloc, int id) {
    return hwloc_get_numanode_obj_by_os_index(hwloc, static_cast<unsigned>(id));
}

// hwloc gives memory without processors those it is near to. Such a node is at least as wide as the
// one that the processors belong to, and the system numbers it later: so the narrowest takes all.
std::vector<NumaNode> read_nodes(hwloc_topology_t hwloc) {
    std::vector<hwloc_obj_t> objects;
    for (hwloc_obj_t each = nullptr;
         (each = hwloc_get_next_obj_by_type(hwloc, HWLOC_OBJ_NUMANODE, each)) != nullptr;) {
        objects.push_back(each);
    }
    std::sort(objects.begin(), objects.end(), [](hwloc_obj_t a, hwloc_obj_t b) {
        const int width_a = hwloc_bitmap_weight(a->cpuset);
        const int width_b = hwloc_bitmap_weight(b->cpuset);
        return width_a != width_b ? width_a < width_b : a->os_index < b->os_index;
    });
    std::vector<bool> taken;
    std::vector<NumaNode> nodes;
    for (const hwloc_obj_t object : objects) {
        NumaNode node{static_cast<int>(object->os_index), object->attr->numanode.local_memory, {}};
        for (int cpu = hwloc_bitmap_first(object->cpuset); cpu >= 0;
             cpu = hwloc_bitmap_next(object->cpuset, cpu)) {
            const auto index = static_cast<std::size_t>(cpu);
            if (taken.size() <= index) taken.resize(index + 1);
            if (!taken[index]) node.cpus.push_back(cpu);
            taken[index] = true;
        }
        nodes.push_back(std::move(node));
    }
    std::sort(nodes.begin(), nodes.end(),
              [](const NumaNode& a, const NumaNode& b) { return a.id < b.id; });
    return nodes;
}

// The table of latencies between nodes, if the machine or the text has one.
class NodeDistances {
   public:
    explicit NodeDistances(hwloc_topology_t hwloc) : hwloc_(hwloc) {
        unsigned count = 1;
        (void)hwloc_distances_get_by_type(hwloc, HWLOC_OBJ_NUMANODE, &count, &table_,
                                          HWLOC_DISTANCES_KIND_MEANS_LATENCY, 0);
    }
    NodeDistances(const NodeDistances&) = delete;
    NodeDistances& operator=(const NodeDistances&) = delete;
    ~NodeDistances() {
        if (table_ != nullptr) hwloc_distances_release(hwloc_, table_);
    }

    /// 0 if it is not known.
    std::uint64_t between(int from, int to) const {
        hwloc_uint64_t there = 0;
        hwloc_uint64_t back = 0;
        if (table_ == nullptr ||
            hwloc_distances_obj_pair_values(table_, numa_object(hwloc_, from),
                                            numa_object(hwloc_, to), &there, &back) != 0) {
            return 0;
        }
        return there;
    }

   private:
    hwloc_topology_t hwloc_;
    hwloc_distances_s* table_ = nullptr;
};

// By latency; where that is not known, among the processors that hwloc calls near.
void find_cpu_nodes(hwloc_topology_t hwloc, std::vector<NumaNode>& nodes) {
    const NodeDistances distances(hwloc);
    const auto farness = [&](const NumaNode& from, const NumaNode& to) {
        const bool near = hwloc_bitmap_isset(numa_object(hwloc, from.id)->cpuset,
                                             static_cast<unsigned>(to.cpus.front())) != 0;
        return std::pair(distances.between(from.id, to.id), !near);
    };
    for (NumaNode& node : nodes) {
        const NumaNode* nearest = node.memory_only() ? nullptr : &node;
        for (const NumaNode& each : nodes) {
            if (!node.memory_only() || each.memory_only()) continue;
            if (nearest == nullptr || farness(node, each) < farness(node, *nearest)) {
                nearest = &each;
            }
        }
        if (nearest != nullptr) node.cpu_node = nearest->id;
    }
}

// The nodes near a device are those of its first ancestor that has any. Memory without processors
// beside them is passed over; if several are left, the machine does not say which.
int node_of(hwloc_topology_t hwloc, const std::vector<NumaNode>& nodes, hwloc_obj_t device) {
    const hwloc_obj_t place = hwloc_get_non_io_ancestor_obj(hwloc, device);
    if (place == nullptr || place->nodeset == nullptr) return kNoNode;
    if (hwloc_bitmap_weight(place->nodeset) == 1) return hwloc_bitmap_first(place->nodeset);
    int found = kNoNode;
    for (const NumaNode& each : nodes) {
        const bool near = hwloc_bitmap_isset(place->nodeset, static_cast<unsigned>(each.id)) != 0;
        if (!near || each.memory_only()) continue;
        if (found != kNoNode) return kNoNode;
        found = each.id;
    }
    return found;
}

// The device's PCI function, itself included; nullptr if it is on no PCI bus.
hwloc_obj_t pci_of(hwloc_obj_t object) {
    while (object != nullptr && object->type != HWLOC_OBJ_PCI_DEVICE) object = object->parent;
    return object;
}

std::string pci_address(hwloc_obj_t pci) {
    if (pci == nullptr) return {};
    const auto& at = pci->attr->pcidev;
    return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", at.domain, at.bus, at.dev, at.func);
}

bool starts_with_digit_after(std::string_view name, std::string_view prefix) {
    return name.size() > prefix.size() && name.substr(0, prefix.size()) == prefix &&
           name[prefix.size()] >= '0' && name[prefix.size()] <= '9';
}

AttachedDevice::Kind kind_of(hwloc_obj_t device) {
    using Kind = AttachedDevice::Kind;
    if (device->attr->osdev.type != HWLOC_OBJ_OSDEV_BLOCK) return Kind::gpu;
    const std::string_view name = device->name;
    const bool pmem = starts_with_digit_after(name, "pmem") || starts_with_digit_after(name, "dax");
    return pmem ? Kind::pmem : Kind::block;
}

// A GPU has several names (cuda0, nvml0, card0); it is listed once, by the one that computes.
void add_device(std::vector<AttachedDevice>& devices, AttachedDevice device, bool better_name) {
    const auto same = std::find_if(devices.begin(), devices.end(), [&](const auto& each) {
        return device.kind == AttachedDevice::Kind::gpu && each.kind == device.kind &&
               !device.pci_address.empty() && each.pci_address == device.pci_address;
    });
    if (same == devices.end()) {
        devices.push_back(std::move(device));
    } else if (better_name) {
        same->name = std::move(device.name);
    }
}

std::vector<AttachedDevice> read_devices(hwloc_topology_t hwloc,
                                         const std::vector<NumaNode>& nodes) {
    std::vector<AttachedDevice> devices;
    for (hwloc_obj_t each = nullptr; (each = hwloc_get_next_osdev(hwloc, each)) != nullptr;) {
        const auto type = each->attr->osdev.type;
        const bool computes = type == HWLOC_OBJ_OSDEV_COPROC;
        if (!computes && type != HWLOC_OBJ_OSDEV_GPU && type != HWLOC_OBJ_OSDEV_BLOCK) continue;
        add_device(
            devices,
            {kind_of(each), each->name, pci_address(pci_of(each)), node_of(hwloc, nodes, each)},
            computes);
    }
    constexpr unsigned kDisplayClass = 0x03;  // PCI: displays and 3D controllers
    for (hwloc_obj_t each = nullptr; (each = hwloc_get_next_pcidev(hwloc, each)) != nullptr;) {
        if (each->attr->pcidev.class_id >> 8 != kDisplayClass) continue;
        const std::string address = pci_address(each);
        add_device(devices,
                   {AttachedDevice::Kind::gpu, address, address, node_of(hwloc, nodes, each)},
                   false);
    }
    return devices;
}

Error no_memory() {
    return Error(Errc::out_of_memory, 0, "topology: no memory for what the machine consists of");
}

}  // namespace

Result<Topology> Topology::create(const Options& options) noexcept {
    try {
        FROSTLINE_TRY(const Hwloc hwloc, discover(options));
        Topology topology;
        topology.nodes_ = read_nodes(hwloc.get());
        find_cpu_nodes(hwloc.get(), topology.nodes_);
        topology.devices_ = read_devices(hwloc.get(), topology.nodes_);
        topology.sysfs_ = options.sysfs;
        topology.calls_ = options.calls;
        topology.this_machine_ = hwloc_topology_is_thissystem(hwloc.get()) != 0;
        return topology;
    } catch (const std::bad_alloc&) {
        return no_memory();
    }
}

const NumaNode* Topology::node(int id) const noexcept {
    const auto found = std::find_if(nodes_.begin(), nodes_.end(),
                                    [id](const NumaNode& each) { return each.id == id; });
    return found == nodes_.end() ? nullptr : &*found;
}

int Topology::node_of_device(std::string_view name) const noexcept {
    const auto found =
        std::find_if(devices_.begin(), devices_.end(), [name](const AttachedDevice& each) {
            return each.name == name || each.pci_address == name;
        });
    return found == devices_.end() || name.empty() ? kNoNode : found->node;
}

Result<int> Topology::node_of_path(const std::string& path) const noexcept {
    // O_PATH: a device is looked at, not opened.
    const FileDescriptor file(calls_->open(path.c_str(), O_PATH | O_CLOEXEC, 0), *calls_);
    struct stat status {};
    if (file.get() < 0 || calls_->fstat(file.get(), &status) != 0) {
        return system_error(errno, "topology: cannot look at {}", path);
    }
    const bool character = S_ISCHR(status.st_mode);
    const dev_t device = character || S_ISBLK(status.st_mode) ? status.st_rdev : status.st_dev;
    try {
        const std::string link = fmt::format(
            "{}/dev/{}/{}:{}", sysfs_, character ? "char" : "block", major(device), minor(device));
        std::error_code none;
        const fs::path directory = fs::canonical(link, none);
        if (none) return kNoNode;  // no device behind it: memory, network, an overlay
        if (character) return node_of_device(directory.filename().string());
        return node_of_block_device(directory.string(), 0);
    } catch (const std::bad_alloc&) {
        return no_memory();
    } catch (const fs::filesystem_error&) {
        return kNoNode;  // the device went away meanwhile
    }
}

// A partition lies where its disk does, and a mapped device (dm, md) where all that it is made of
// does. May throw what the file system library throws.
int Topology::node_of_block_device(const std::string& directory, int depth) const {
    constexpr int kDeepest = 8;  // mappings of mappings; a loop is no machine
    const fs::path path(directory);
    if (depth > kDeepest) return kNoNode;
    if (fs::exists(path / "partition")) {
        return node_of_block_device(path.parent_path().string(), depth + 1);
    }
    if (!fs::is_directory(path / "slaves") || fs::is_empty(path / "slaves")) {
        return node_of_device(path.filename().string());
    }
    std::vector<int> below;
    for (const auto& each : fs::directory_iterator(path / "slaves")) {
        below.push_back(node_of_block_device(fs::canonical(each.path()).string(), depth + 1));
    }
    const bool same =
        std::adjacent_find(below.begin(), below.end(), std::not_equal_to<>()) == below.end();
    return same ? below.front() : kNoNode;
}

Result<void> Topology::bind_current_thread(int node) const noexcept {
    const NumaNode* const wanted = this->node(node);
    if (wanted == nullptr) {
        return Error(Errc::invalid_argument, 0, "topology: this machine has no NUMA node {}", node);
    }
    const NumaNode* const near = this->node(wanted->cpu_node);
    if (!this_machine_ || near == nullptr) {
        return Error(Errc::unsupported, 0, "topology: no thread can be bound to NUMA node {}: {}",
                     node, near == nullptr ? "no node has processors" : "it is not this machine's");
    }
    const auto count = static_cast<std::size_t>(near->cpus.back()) + 1;
    const auto free_set = [](cpu_set_t* set) { CPU_FREE(set); };
    const std::unique_ptr<cpu_set_t, decltype(free_set)> set(CPU_ALLOC(count), free_set);
    if (set == nullptr) return no_memory();
    const std::size_t bytes = CPU_ALLOC_SIZE(count);
    CPU_ZERO_S(bytes, set.get());
    for (const int cpu : near->cpus) CPU_SET_S(static_cast<std::size_t>(cpu), bytes, set.get());
    // Not beyond what the thread was given, by taskset for example.
    const std::unique_ptr<cpu_set_t, decltype(free_set)> given(CPU_ALLOC(CPU_SETSIZE), free_set);
    if (given == nullptr) return no_memory();
    CPU_ZERO_S(CPU_ALLOC_SIZE(CPU_SETSIZE), given.get());
    if (::sched_getaffinity(0, CPU_ALLOC_SIZE(CPU_SETSIZE), given.get()) == 0) {
        for (const int cpu : near->cpus) {
            const auto index = static_cast<std::size_t>(cpu);
            if (!CPU_ISSET_S(index, CPU_ALLOC_SIZE(CPU_SETSIZE), given.get())) {
                CPU_CLR_S(index, bytes, set.get());
            }
        }
    }
    if (CPU_COUNT_S(bytes, set.get()) == 0) {
        return Error(Errc::permission, 0,
                     "topology: this process may not run on the processors of NUMA node {}",
                     near->id);
    }
    if (calls_->sched_setaffinity(0, bytes, set.get()) != 0) {
        return system_error(errno, "topology: cannot bind a thread to NUMA node {}", near->id);
    }
    return ok();
}

}  // namespace frostline
