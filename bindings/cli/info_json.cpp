// The facts as JSON, for programs: names are never changed, only added.
#include "bindings/cli/info_facts.h"
#include "bindings/manager.h"

#include <fmt/core.h>

#include <array>
#include <ctime>

namespace frostline::cli {
namespace {

using Json = nlohmann::ordered_json;

Json text_or_null(const std::string& text) {
    return text.empty() ? Json() : Json(text);
}
Json node_or_null(int node) {
    return node < 0 ? Json() : Json(node);
}

Json topology_json(const MachineInfo& machine) {
    Json out{{"nodes", Json::array()}, {"devices", Json::array()}};
    for (const MachineInfo::Node& node : machine.nodes) {
        out["nodes"].push_back({{"id", node.id},
                                {"memory_bytes", node.memory_bytes},
                                {"cpus", node.cpus},
                                {"memory_only", node.cpus.empty()}});
    }
    for (const MachineInfo::Device& device : machine.devices) {
        out["devices"].push_back({{"kind", device.kind},
                                  {"name", device.name},
                                  {"pci_address", text_or_null(device.pci_address)},
                                  {"node", node_or_null(device.node)}});
    }
    if (!machine.topology_unknown_because.empty()) {
        out["unknown_because"] = machine.topology_unknown_because;
    }
    return out;
}

Json speed_json(const MachineInfo::TierReport& tier) {
    const TierSpeed& speed = tier.speed;
    return {{"read_bytes_per_s", speed.read_bytes_per_s},
            {"write_bytes_per_s", speed.write_bytes_per_s},
            {"read_latency_ns", speed.read_latency_ns},
            {"write_latency_ns", speed.write_latency_ns},
            {"best_writers", speed.best_writers},
            {"measured_at", utc_text(tier.measured_at_s)},
            {"cached", tier.cached}};
}

Json tier_json(const MachineInfo::TierReport& tier) {
    Json out{{"name", tier.name}, {"usable", tier.usable}};
    if (!tier.usable) out["because"] = tier.because;
    out["location"] = text_or_null(tier.location);
    if (!tier.usable) return out;
    out["label"] = tier.label;
    out["access"] = text_or_null(tier.access);
    out["fallback"] = text_or_null(tier.fallback);
    out["node"] = node_or_null(tier.node);
    out["measured"] = tier.measured_at_s > 0 ? speed_json(tier) : Json();
    if (tier.measured_at_s == 0) out["not_measured_because"] = tier.not_measured_because;
    return out;
}

}  // namespace

std::string cuda_version_text(int version) {
    return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string utc_text(std::int64_t seconds_since_1970) {
    const auto seconds = static_cast<std::time_t>(seconds_since_1970);
    struct tm utc = {};
    std::array<char, 32> text{};
    if (::gmtime_r(&seconds, &utc) == nullptr ||
        std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc) == 0) {
        return {};
    }
    return text.data();
}

Json info_json(const InfoFacts& facts) {
    Json out;
    out["version"] = version();
    out["cpus"] = facts.cpus;
    out["memory_bytes"] = facts.memory_bytes;
    out["memory_available_bytes"] = facts.memory_available_bytes;
    out["cuda_headers"] = cuda_version_text(cuda_header_version());
    out["gpus"] = Json::array();
    if (facts.gpus) {
        out["cuda_driver"] = cuda_version_text(facts.gpus->driver_version);
        for (const GpuInfo::Gpu& gpu : facts.gpus->gpus) {
            out["gpus"].push_back({{"name", gpu.name}, {"memory_bytes", gpu.memory_bytes}});
        }
    } else {
        out["gpus_absent_because"] = facts.gpus_absent_because;
    }
    const MachineInfo& machine = facts.machine;
    out["topology"] = topology_json(machine);
    out["tiers"] = Json::array();
    for (const MachineInfo::TierReport& tier : machine.tiers) {
        out["tiers"].push_back(tier_json(tier));
    }
    out["calibration"] = {{"cache", text_or_null(machine.cache_path)},
                          {"cache_problem", text_or_null(machine.cache_problem)},
                          {"seconds", static_cast<double>(machine.measuring_ns) / 1e9}};
    return out;
}

}  // namespace frostline::cli
