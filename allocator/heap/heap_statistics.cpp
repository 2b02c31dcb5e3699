// The text of a leak report.
#include "allocator/heap/heap_statistics.h"

#include <fmt/format.h>

#include <iterator>

namespace frostline {

std::string leak_report(std::string_view heap, std::span<const HeapAllocation> living) {
    std::string text;
    std::uint64_t bytes = 0;
    const auto out = std::back_inserter(text);
    for (const HeapAllocation& each : living) {
        fmt::format_to(out,
                       "{}: allocation {} (tensor {}) still has {} bytes, {:.1f} s after its birth",
                       heap, each.birth, each.id.packed(), each.size_bytes, each.age_s);
        if (!each.place.empty()) fmt::format_to(out, ", {}", each.place);
        text += '\n';
        bytes += each.size_bytes;
    }
    fmt::format_to(out, "{}: {} allocations of {} bytes together were never freed\n", heap,
                   living.size(), bytes);
    return text;
}

}  // namespace frostline
