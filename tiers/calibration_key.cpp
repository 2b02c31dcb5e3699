// Fingerprints, from what the system says of itself. What it does not say is left out: the
// fingerprint is then less exact, and measurements still expire.
#include "tiers/calibration_cache.h"

#include <fmt/core.h>
#include <numa.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <fstream>

namespace frostline {
namespace {

std::string cpu_model() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        if (!line.starts_with("model name")) continue;
        const std::size_t colon = line.find(": ");
        if (colon != std::string::npos) return line.substr(colon + 2);
    }
    return "unknown CPU";
}

// In GiB, because a virtual machine's memory varies by a little from start to start.
std::uint64_t memory_gib() {
    const long pages = ::sysconf(_SC_PHYS_PAGES);
    const long page_bytes = ::sysconf(_SC_PAGE_SIZE);
    if (pages <= 0 || page_bytes <= 0) return 0;
    const std::uint64_t bytes =
        static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page_bytes);
    return (bytes + (std::uint64_t{1} << 29)) >> 30;
}

}  // namespace

std::string machine_fingerprint() {
    struct utsname system = {};
    const bool named = ::uname(&system) == 0;
    return fmt::format("{} {}; {} x {}; {} GiB; {} NUMA nodes", named ? system.sysname : "unknown",
                       named ? system.release : "", ::sysconf(_SC_NPROCESSORS_ONLN), cpu_model(),
                       memory_gib(), ::numa_available() < 0 ? 1 : ::numa_num_configured_nodes());
}

std::string medium_fingerprint(const TierInfo& info) {
    std::string out = fmt::format("{}, {}, node {}, '{}'", name(info.kind), name(info.label),
                                  info.numa_node, info.access);
    if (info.location.empty()) return out;
    struct stat status = {};
    struct statfs system = {};
    if (::stat(info.location.c_str(), &status) != 0 ||
        ::statfs(info.location.c_str(), &system) != 0) {
        return out + ", at " + info.location;  // several places, or gone: for this location only
    }
    const bool is_device = S_ISCHR(status.st_mode) || S_ISBLK(status.st_mode);
    const dev_t device = is_device ? status.st_rdev : status.st_dev;
    out += fmt::format(", {} {}:{}", is_device ? "device" : "on", major(device), minor(device));
    if (!is_device) out += fmt::format(", file system {:x}", system.f_type);
    return out;
}

}  // namespace frostline
