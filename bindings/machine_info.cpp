// Each tier is opened as a manager would open it, small, rated, described and closed.
#include "bindings/machine_info.h"

#include "bindings/gpu_info.h"
#include "bindings/manager_options.h"
#include "bindings/tier_speeds.h"
#include "tiers/dram_tier.h"
#include "tiers/pmem_tier.h"
#include "tiers/swap_tier.h"
#include "tiers/topology.h"

#include <mntent.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <utility>

namespace frostline {
namespace {

// Of what is made only to be looked at: four times of what a measurement takes.
constexpr std::uint64_t kExaminedBytes = std::uint64_t{256} << 20;
constexpr std::uint64_t kSwapGrowthBytes = std::uint64_t{64} << 20;

const char* kind_name(AttachedDevice::Kind kind) {
    switch (kind) {
        case AttachedDevice::Kind::gpu:
            return "gpu";
        case AttachedDevice::Kind::pmem:
            return "pmem";
        case AttachedDevice::Kind::block:
            return "block";
    }
    return "";
}

void describe_topology(MachineInfo& info) {
    const Result<Topology> topology = Topology::create();
    if (!topology) {
        info.topology_unknown_because = topology.error().message();
        return;
    }
    for (const NumaNode& node : topology->nodes()) {
        info.nodes.push_back({node.id, node.memory_bytes, node.cpus});
    }
    for (const AttachedDevice& device : topology->devices()) {
        info.devices.push_back(
            {kind_name(device.kind), device.name, device.pci_address, device.node});
    }
}

// Where file systems lie that give programs their persistent memory itself.
std::vector<std::string> dax_mounts() {
    std::vector<std::string> out;
    const std::unique_ptr<FILE, int (*)(FILE*)> mounts(::setmntent("/proc/self/mounts", "re"),
                                                       ::endmntent);
    if (!mounts) return out;
    std::vector<char> buffer(65536);
    struct mntent entry = {};
    while (::getmntent_r(mounts.get(), &entry, buffer.data(), static_cast<int>(buffer.size())) !=
           nullptr) {
        const char* const option = ::hasmntopt(&entry, "dax");
        const std::string text = option == nullptr ? "" : std::string(option).substr(0, 9);
        if (option != nullptr && text != "dax=never") out.emplace_back(entry.mnt_dir);
    }
    return out;
}

std::string join(const std::vector<std::string>& words) {
    std::string out;
    for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
    return out;
}

// Why no pmem tier is there although nobody named one.
std::string pmem_hint(const MachineInfo& info) {
    std::vector<std::string> places = dax_mounts();
    for (const MachineInfo::Device& device : info.devices) {
        if (std::string(device.kind) == "pmem") places.push_back(device.name);
    }
    if (places.empty()) {
        return "no DAX region or file system was found; a file given with --pmem stands in for it "
               "(emulated)";
    }
    return "none was chosen: give a file or device with --pmem (DAX: " + join(places) + ")";
}

std::string device_hint() {
    const Result<GpuInfo> gpus = gpu_info();
    if (!gpus) return gpus.error().message();
    if (gpus->gpus.empty()) return "the driver knows no GPU";
    return "none was chosen: device=SIZE makes one of a GPU's memory; frostline check --device "
           "tries it";
}

// The tiers that could be opened, beside their place in the report.
class Examination {
   public:
    Examination(MachineInfo& info, SpeedSource source) : info_(info), source_(source) {}

    void absent(const char* name, std::string because) {
        MachineInfo::TierReport report;
        report.name = name;
        report.because = std::move(because);
        info_.tiers.push_back(std::move(report));
    }

    template <class SomeTier>
    void opened(const char* name, Result<std::unique_ptr<SomeTier>> tier, bool asked_for,
                const std::string& location, SpeedSource source) {
        if (!tier) {
            absent(name, tier.error().message());
        } else {
            absent(name, {});
            info_.tiers.back().usable = true;
            to_rate_.push_back({tier->get(), source});
            places_.push_back(info_.tiers.size() - 1);
            tiers_.push_back(*std::move(tier));
        }
        info_.tiers.back().asked_for = asked_for;
        info_.tiers.back().location = location;
    }
    SpeedSource source() const { return source_; }

    void rate() {
        SpeedReport speeds = find_speeds(to_rate_);
        for (std::size_t i = 0; i < places_.size(); ++i) {
            MachineInfo::TierReport& report = info_.tiers[places_[i]];
            const TierInfo& tier = tiers_[i]->info();
            report.label = name(tier.label).data();  // a literal, so it ends in NUL
            report.access = tier.access;
            report.fallback = tier.fallback;
            report.node = tier.numa_node;
            report.speed = tier.speed;
            report.measured_at_s = speeds.tiers[i].measured_at_s;
            report.cached = speeds.tiers[i].cached;
            report.not_measured_because = std::move(speeds.tiers[i].problem);
        }
        if (source_ == SpeedSource::none) {
            info_.cache_problem = "FROSTLINE_CALIBRATION is off";
        } else {
            info_.cache_path = std::move(speeds.cache_path);
            info_.cache_problem = std::move(speeds.cache_problem);
        }
        info_.measuring_ns = speeds.measuring_ns;
    }

   private:
    MachineInfo& info_;
    SpeedSource source_;
    std::vector<std::unique_ptr<Tier>> tiers_;
    std::vector<TierToRate> to_rate_;
    std::vector<std::size_t> places_;  // in the report
};

void examine_pmem(Examination& examination, const MachineInfo& info, const MachineQuery& query) {
    if (query.pmem_path.empty()) return examination.absent("pmem", pmem_hint(info));
    // What lies in a file that exists is not ours to overwrite, unless we are told to.
    const bool exists = ::access(query.pmem_path.c_str(), F_OK) == 0 || errno != ENOENT;
    SpeedSource source = examination.source();
    const bool look_only = exists && !query.measure;
    if (look_only && source != SpeedSource::none) source = SpeedSource::cache;
    examination.opened("pmem",
                       PmemTier::create({.id = TierId{1},
                                         .path = query.pmem_path,
                                         .size_bytes = exists ? 0 : kExaminedBytes,
                                         .keep_content = exists,
                                         .allocate = !look_only}),
                       true, query.pmem_path, source);
}

void examine_swap(Examination& examination, const MachineQuery& query) {
    std::string directory = query.swap_directory;
    ManagerOptions places;
    if (directory.empty()) {
        const char* const temporary = std::getenv("TMPDIR");
        directory = temporary != nullptr && *temporary != '\0' ? temporary : "/tmp";
        places.swap_places = {directory};
    } else if (const auto set = set_option(places, "swap", directory); !set) {
        return examination.opened("swap", Result<std::unique_ptr<SwapTier>>(set.error()), true,
                                  directory, examination.source());
    }
    examination.opened("swap",
                       SwapTier::create({.id = TierId{2},
                                         .places = places.swap_places,
                                         .size_bytes = kExaminedBytes,
                                         .growth_bytes = kSwapGrowthBytes}),
                       !query.swap_directory.empty(), directory, examination.source());
}

}  // namespace

Result<MachineInfo> machine_info(const MachineQuery& query) try {
    FROSTLINE_TRY(SpeedSource source, speed_source_from_environment());
    if (query.measure) source = SpeedSource::measurement;
    MachineInfo info;
    describe_topology(info);
    Examination examination(info, source);
    examination.absent("device", device_hint());
    examination.opened("dram",
                       DramTier::create({.id = TierId{0}, .capacity_bytes = kExaminedBytes}), false,
                       {}, source);
    examine_pmem(examination, info, query);
    examine_swap(examination, query);
    examination.rate();
    return info;
} catch (const std::bad_alloc&) {
    return Error(Errc::out_of_memory, 0, "no memory to describe the machine");
}

}  // namespace frostline
