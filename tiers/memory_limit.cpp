// /proc/self/cgroup names the process's group in each hierarchy, /proc/self/mountinfo where the
// hierarchy is mounted, and from which group downwards.
#include "tiers/memory_limit.h"

#include "tiers/page.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

namespace frostline {
namespace {

// Version 2 has one hierarchy for all controllers, version 1 one of its own for memory.
enum class Version : std::uint8_t { one, two };

struct Group {
    Version version;
    std::string path;
};

bool lists(const std::string& names, std::string_view wanted) {
    std::istringstream list(names);
    for (std::string name; std::getline(list, name, ',');) {
        if (name == wanted) return true;
    }
    return false;
}

// Lines are NUMBER:CONTROLLERS:PATH; version 2 has the number 0 and no controllers.
std::vector<Group> groups_of_process(const std::string& root) {
    std::vector<Group> groups;
    std::ifstream lines(root + "/proc/self/cgroup");
    for (std::string line; std::getline(lines, line);) {
        const std::size_t first = line.find(':');
        const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
        if (second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        if (line.starts_with("0::")) {
            groups.push_back({Version::two, line.substr(second + 1)});
        } else if (lists(controllers, "memory")) {
            groups.push_back({Version::one, line.substr(second + 1)});
        }
    }
    return groups;
}

// From the mount downwards; where the group lies outside of what is mounted, the mount itself.
std::string below(const std::string& path, const std::string& mounted) {
    const std::string top = mounted == "/" ? "" : mounted;
    const bool within = path.starts_with(top) &&
                        (path.size() == top.size() || path[top.size()] == '/') &&
                        path.find("/..") == std::string::npos;
    const std::string rest = within ? path.substr(top.size()) : "";
    return rest == "/" ? "" : rest;
}

std::uint64_t limit_in(const std::string& file) {
    std::uint64_t limit = 0;
    std::ifstream text(file);
    return text >> limit ? limit : UINT64_MAX;  // "max" is no number
}

std::uint64_t limit_from(const std::string& mount, std::string path, Version version) {
    const char* const file = version == Version::two ? "/memory.max" : "/memory.limit_in_bytes";
    std::uint64_t lowest = limit_in(mount + path + file);
    while (!path.empty()) {
        path.resize(path.rfind('/'));
        lowest = std::min(lowest, limit_in(mount + path + file));
    }
    return lowest;
}

std::uint64_t memory_of_machine() noexcept {
    const long pages = ::sysconf(_SC_PHYS_PAGES);
    return pages <= 0 ? 0 : static_cast<std::uint64_t>(pages) * kPageBytes;
}

}  // namespace

std::uint64_t memory_limit_bytes(const std::string& root) {
    std::uint64_t lowest = memory_of_machine();
    const std::vector<Group> groups = groups_of_process(root);
    std::ifstream lines(root + "/proc/self/mountinfo");
    for (std::string line; std::getline(lines, line);) {
        std::string skipped;
        std::string mounted;
        std::string mount;
        std::string type;
        std::string options;
        std::istringstream words(line);
        words >> skipped >> skipped >> skipped >> mounted >> mount;
        while (words >> skipped && skipped != "-") {
        }
        words >> type >> skipped >> options;
        for (const Group& group : groups) {
            const bool here = group.version == Version::two
                                  ? type == "cgroup2"
                                  : type == "cgroup" && lists(options, "memory");
            if (!here) continue;
            lowest = std::min(lowest,
                              limit_from(root + mount, below(group.path, mounted), group.version));
        }
    }
    return lowest;
}

}  // namespace frostline
