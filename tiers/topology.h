// The machine's places as hwloc sees them: NUMA nodes, and what hangs off which. Read once, then
// fixed; every processor belongs to exactly one node, as it does for the operating system.
#pragma once

#include "tiers/result.h"
#include "tiers/system_calls.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace frostline {

/// What stands for a node that is not known.
inline constexpr int kNoNode = -1;

/// Memory that is equally far from its processors.
struct NumaNode {
    int id = kNoNode;                ///< the operating system's
    std::uint64_t memory_bytes = 0;  ///< may be 0: processors without memory
    std::vector<int> cpus;           ///< the operating system's numbers, ascending
    int cpu_node = kNoNode;          ///< itself, or the nearest node that has processors

    /// CXL memory, or pmem used as system memory.
    bool memory_only() const noexcept { return cpus.empty(); }
};

/// A device that bytes come from or go to.
struct AttachedDevice {
    enum class Kind : std::uint8_t { gpu, pmem, block };
    Kind kind{};
    std::string name;         ///< the system's or CUDA's, such as "sda"; else the PCI address
    std::string pci_address;  ///< such as "0000:3b:00.0"; empty if it is on no PCI bus
    int node = kNoNode;
};

/// An immutable value; thread-safe.
class Topology {
   public:
    struct Options {
        std::string synthetic;       ///< hwloc's short form of a machine that does not exist
        std::string xml;             ///< hwloc's XML of some machine; both empty: this machine
        std::string sysfs = "/sys";  ///< where node_of_path() looks devices up
        const SystemCalls* calls = &SystemCalls::real();
    };

    /// Takes milliseconds. Errors: invalid_argument (text that hwloc does not take), unsupported
    /// (hwloc cannot read this machine), out_of_memory.
    static Result<Topology> create(const Options& options) noexcept;
    static Result<Topology> create() noexcept { return create(Options{}); }

    /// The nodes that this process may use, by ascending id; at least one.
    const std::vector<NumaNode>& nodes() const noexcept { return nodes_; }
    /// nullptr if there is no such node.
    const NumaNode* node(int id) const noexcept;

    const std::vector<AttachedDevice>& devices() const noexcept { return devices_; }
    /// By name or PCI address. kNoNode if there is no such device, or its node is not known.
    int node_of_device(std::string_view name) const noexcept;

    /// The node that holds the medium of a file, directory or device; kNoNode if that is not known
    /// (memory, network, disks on several nodes). Errors: not_found and others of open().
    Result<int> node_of_path(const std::string& path) const noexcept;

    /// Lets the calling thread run only on the processors of `node`, or of the nearest node that
    /// has some. Errors: invalid_argument (no such node), unsupported (the topology is not this
    /// machine's), those of sched_setaffinity().
    Result<void> bind_current_thread(int node) const noexcept;

   private:
    Topology() = default;
    int node_of_block_device(const std::string& directory, int depth) const;

    std::vector<NumaNode> nodes_;
    std::vector<AttachedDevice> devices_;
    std::string sysfs_;
    const SystemCalls* calls_ = nullptr;
    bool this_machine_ = true;
};

}  // namespace frostline
