// A machine as text for hwloc: two packages with a node each (node N has N + 1 GiB); node 2 is
// memory without processors beside package 0, node 3 the same for the whole machine, but nearest to
// node 1 by latency. Package 0 has an NVMe disk; package 1 a GPU with three names, a display
// without any, and pmem; one disk hangs off nothing that is known.
#pragma once

#include <string>

namespace frostline {

inline std::string two_packages_xml() {
    // In XML an object names the sets of what it covers; package() writes what both have alike.
    const auto sets = [](const std::string& cpus, const std::string& nodes) {
        return R"( cpuset=")" + cpus + R"(" complete_cpuset=")" + cpus + R"(" nodeset=")" + nodes +
               R"(" complete_nodeset=")" + nodes + R"(")";
    };
    const auto pu = [&](int os, const std::string& cpus, const std::string& nodes) {
        return R"(<object type="PU" os_index=")" + std::to_string(os) + R"(")" + sets(cpus, nodes) +
               R"( gp_index=")" + std::to_string(10 + os) + R"("/>)";
    };
    const auto node = [&](int os, const std::string& cpus, const std::string& memory) {
        return R"(<object type="NUMANode" os_index=")" + std::to_string(os) + R"(")" +
               sets(cpus, "0x" + std::to_string(1 << os)) + R"( gp_index=")" +
               std::to_string(20 + os) + R"(" local_memory=")" + memory + R"("/>)";
    };
    const auto device = [](int gp, const std::string& name, int type) {
        return R"(<object type="OSDev" gp_index=")" + std::to_string(gp) + R"(" name=")" + name +
               R"(" osdev_type=")" + std::to_string(type) + R"("/>)";
    };
    const auto pci = [](int gp, const std::string& bus, const std::string& type,
                        const std::string& inside) {
        return R"(<object type="PCIDev" gp_index=")" + std::to_string(gp) + R"(" pci_busid=")" +
               bus + R"(" pci_type=")" + type +
               R"( [10de:2330] [10de:16c1] a1" pci_link_speed="0.0">)" + inside + "</object>";
    };
    const auto bridge = [](int gp, const std::string& buses, const std::string& inside) {
        return R"(<object type="Bridge" gp_index=")" + std::to_string(gp) +
               R"(" bridge_type="0-1" depth="0" bridge_pci=")" + buses + R"(">)" + inside +
               "</object>";
    };
    enum : int { block = 0, gpu = 1, compute = 5 };
    return "<?xml version=\"1.0\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n"
           R"(<topology version="2.0"><object type="Machine" os_index="0")" +
           sets("0xf", "0xf") + R"( allowed_cpuset="0xf" allowed_nodeset="0xf" gp_index="1">)" +
           node(3, "0xf", "4294967296") + R"(<object type="Package" os_index="0")" +
           sets("0x3", "0x5") + R"( gp_index="2">)" + node(0, "0x3", "1073741824") +
           node(2, "0x3", "3221225472") + pu(0, "0x1", "0x5") + pu(1, "0x2", "0x5") +
           bridge(30, "0000:[00-0f]",
                  pci(31, "0000:02:00.0", "0108", device(32, "nvme0n1", block))) +
           "</object>"
           R"(<object type="Package" os_index="1")" +
           sets("0xc", "0x2") + R"( gp_index="3">)" + node(1, "0xc", "2147483648") +
           pu(2, "0x4", "0x2") + pu(3, "0x8", "0x2") +
           bridge(40, "0000:[80-8f]",
                  pci(41, "0000:81:00.0", "0302",
                      device(42, "card1", gpu) + device(43, "cuda0", compute) +
                          device(44, "nvml0", gpu)) +
                      pci(45, "0000:82:00.0", "0300", "")) +
           device(50, "pmem3", block) + device(51, "dax2.0", block) + "</object>" +
           device(60, "sda", block) +
           R"(</object><distances2 type="NUMANode" nbobjs="4" kind="5" indexing="os">)"
           R"(<indexes length="8">0 1 2 3 </indexes>)"
           R"(<u64values length="48">10 20 17 30 20 10 28 24 17 28 10 40 30 24 40 10 </u64values>)"
           "</distances2></topology>";
}

}  // namespace frostline
