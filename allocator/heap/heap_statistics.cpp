// The text of a leak report.
#include "allocator/heap/heap_statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace frostline {
namespace {

// Whoever leaks more has no use for each.
constexpr std::size_t kMostLines = 1000;

}  // namespace

std::string leak_report(std::string_view heap, std::span<const HeapAllocation> living) {
    std::string text;
    std::uint64_t bytes = 0;
    const auto out = std::back_inserter(text);
    for (const HeapAllocation& each : living) {
        bytes += each.size_bytes;
        if (static_cast<std::size_t>(&each - living.data()) >= kMostLines) continue;
        fmt::format_to(
            out,
            "frostline: {}: allocation {} (tensor {}) still has {} bytes, {:.1f} s after "
            "its birth",
            heap, each.birth, each.id.packed(), each.size_bytes, each.age_s);
        if (!each.place.empty()) fmt::format_to(out, ", {}", each.place);
        text += '\n';
    }
    if (living.size() > kMostLines) {
        fmt::format_to(out, "frostline: {}: and {} more\n", heap, living.size() - kMostLines);
    }
    const bool told = std::any_of(living.begin(), living.end(),
                                  [](const HeapAllocation& each) { return !each.place.empty(); });
    fmt::format_to(out, "frostline: {}: {} allocations of {} bytes together were never freed{}\n",
                   heap, living.size(), bytes,
                   told ? "" : "; a heap that is opened with debug says where they were made");
    return text;
}

}  // namespace frostline
