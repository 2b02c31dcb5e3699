// The facts as text, for people: one thing a line, in columns.
#include "bindings/byte_size.h"
#include "bindings/cli/info_facts.h"
#include "bindings/manager.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

namespace frostline::cli {
namespace {

// Ascending numbers as ranges: "0-3,8".
std::string ranges(const std::vector<int>& numbers) {
    std::string out;
    for (std::size_t i = 0; i < numbers.size();) {
        std::size_t end = i + 1;
        while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
        out += out.empty() ? "" : ",";
        out += end - i == 1 ? fmt::format("{}", numbers[i])
                            : fmt::format("{}-{}", numbers[i], numbers[end - 1]);
        i = end;
    }
    return out;
}

std::string node_text(int node) {
    return node < 0 ? "node unknown" : fmt::format("node {}", node);
}

void line(const std::string& name, const std::string& text) {
    fmt::print("{:<13} {}\n", name, text);
}

void print_gpus(const InfoFacts& facts) {
    line("CUDA headers", cuda_version_text(cuda_header_version()) + " (build time)");
    if (!facts.gpus) {
        line("GPUs", "none: " + facts.gpus_absent_because);
        return;
    }
    for (const GpuInfo::Gpu& gpu : facts.gpus->gpus) {
        line("GPU", fmt::format("{} ({})", gpu.name, format_byte_size(gpu.memory_bytes)));
    }
}

void print_topology(const MachineInfo& machine) {
    if (!machine.topology_unknown_because.empty()) {
        line("topology", "unknown: " + machine.topology_unknown_because);
    }
    for (const MachineInfo::Node& node : machine.nodes) {
        line(fmt::format("node {}", node.id),
             fmt::format("{}, {}", format_byte_size(node.memory_bytes),
                         node.cpus.empty() ? "memory only" : "CPUs " + ranges(node.cpus)));
    }
    for (const MachineInfo::Device& device : machine.devices) {
        const std::string address =
            device.pci_address.empty() ? "" : fmt::format(" ({})", device.pci_address);
        line(fmt::format("{} device", device.kind),
             fmt::format("{}{}, {}", device.name, address, node_text(device.node)));
    }
}

std::string gib_per_s(std::uint64_t bytes_per_s) {
    return fmt::format("{:.2f} GiB/s", static_cast<double>(bytes_per_s) / (1 << 30));
}
std::string microseconds(std::uint64_t ns) {
    return fmt::format("{:.1f} us", static_cast<double>(ns) / 1e3);
}

// What is worth knowing of a usable tier besides its figures.
std::string remarks(const MachineInfo::TierReport& tier) {
    std::string out = tier.location;
    const auto add = [&](const std::string& text) {
        if (!text.empty()) out += (out.empty() ? "" : "; ") + text;
    };
    add(tier.access);
    add(tier.fallback.empty() ? "" : "fallback: " + tier.fallback);
    if (tier.measured_at_s > 0) {
        add((tier.cached ? "measured " : "measured now, ") + utc_text(tier.measured_at_s));
    } else {
        add("not measured: " + tier.not_measured_because);
    }
    return out;
}

void print_tiers(const MachineInfo& machine) {
    const char* const columns = "{:<6} {:<9} {:>12} {:>12} {:>11} {:>11} {:>7}  {}\n";
    fmt::print("\n");
    fmt::print(fmt::runtime(columns), "tier", "label", "read", "write", "page read", "page write",
               "writers", "");
    for (const MachineInfo::TierReport& tier : machine.tiers) {
        if (!tier.usable) {
            fmt::print("{:<6} {:<9} {}\n", tier.name, "absent", tier.because);
        } else if (tier.measured_at_s == 0) {
            fmt::print(fmt::runtime(columns), tier.name, tier.label, "-", "-", "-", "-", "-",
                       remarks(tier));
        } else {
            const TierSpeed& speed = tier.speed;
            fmt::print(fmt::runtime(columns), tier.name, tier.label,
                       gib_per_s(speed.read_bytes_per_s), gib_per_s(speed.write_bytes_per_s),
                       microseconds(speed.read_latency_ns), microseconds(speed.write_latency_ns),
                       speed.best_writers, remarks(tier));
        }
    }
    fmt::print("\n");
    line("measured in", fmt::format("{:.2f} s", static_cast<double>(machine.measuring_ns) / 1e9));
    line("kept in", machine.cache_path.empty() ? "nothing" : machine.cache_path);
    if (!machine.cache_problem.empty()) line("cache unused", machine.cache_problem);
}

}  // namespace

void print_info(const InfoFacts& facts) {
    line("frostline", version());
    line("CPUs", fmt::format("{}", facts.cpus));
    line("memory", fmt::format("{} ({} available)", format_byte_size(facts.memory_bytes),
                               format_byte_size(facts.memory_available_bytes)));
    print_gpus(facts);
    print_topology(facts.machine);
    print_tiers(facts.machine);
}

}  // namespace frostline::cli
