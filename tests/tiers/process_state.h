// What this process holds of the system: descriptors, mappings, resident pages. For leak checks and
// for proofs that bytes which left a tier really left memory.
#pragma once

#include "tiers/page.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace frostline {

inline std::size_t open_descriptors() {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

/// How many mappings of this process name `text` (a path, say).
inline std::size_t mappings_of(const std::string& text) {
    std::ifstream maps("/proc/self/maps");
    std::size_t count = 0;
    for (std::string line; std::getline(maps, line);) {
        count += line.find(text) != std::string::npos ? 1 : 0;
    }
    return count;
}

/// Bytes of private anonymous memory at [address, address + size_bytes) that take up memory.
inline std::uint64_t resident_bytes(const void* address, std::uint64_t size_bytes) {
    std::vector<unsigned char> pages((size_bytes + kPageBytes - 1) / kPageBytes);
    if (pages.empty()) return 0;
    if (::mincore(const_cast<void*>(address), size_bytes, pages.data()) != 0) return UINT64_MAX;
    const auto resident =
        std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return page & 1; });
    return static_cast<std::uint64_t>(resident) * kPageBytes;
}

/// One figure, in bytes, of the mapping in /proc/self/smaps that contains `address`: "Rss", say.
/// mincore will not do for files: there it tells what the page cache has, not what is mapped.
inline std::uint64_t mapping_bytes(const void* address, const std::string& figure) {
    std::ifstream smaps("/proc/self/smaps");
    const auto wanted = reinterpret_cast<std::uint64_t>(address);
    bool inside = false;
    for (std::string line; std::getline(smaps, line);) {
        unsigned long long start = 0;
        unsigned long long end = 0;
        if (std::sscanf(line.c_str(), "%llx-%llx ", &start, &end) == 2) {
            inside = start <= wanted && wanted < end;
        } else if (inside && line.compare(0, figure.size() + 1, figure + ":") == 0) {
            return std::strtoull(line.c_str() + figure.size() + 1, nullptr, 10) * 1024;
        }
    }
    return UINT64_MAX;
}

}  // namespace frostline
