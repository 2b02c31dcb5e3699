// Events carry their place in the order of all, so that lists can be sorted together.
#include "allocator/heap/heap_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <new>

namespace frostline {

void HeapTrace::add(std::vector<HeapEvent>& events, HeapEvent event) noexcept {
    event.place = next_place_.fetch_add(1, std::memory_order_relaxed);
    if (event.place < kMostEvents) {
        try {
            events.push_back(event);
            return;
        } catch (const std::bad_alloc&) {
            // As if the trace were full.
        }
    }
    incomplete_.store(true, std::memory_order_relaxed);
}

std::string HeapTrace::text(std::span<const std::vector<HeapEvent>> lists) {
    std::vector<HeapEvent> all;
    for (const auto& events : lists) all.insert(all.end(), events.begin(), events.end());
    std::sort(all.begin(), all.end(),
              [](const HeapEvent& a, const HeapEvent& b) { return a.place < b.place; });
    std::string text = "frostline-allocs 1\n";
    const auto out = std::back_inserter(text);
    for (const HeapEvent& event : all) {
        switch (event.kind) {
            case HeapEvent::Kind::birth:
                fmt::format_to(out, "a {} {}\n", event.number, event.size_bytes);
                break;
            case HeapEvent::Kind::death:
                fmt::format_to(out, "f {}\n", event.number);
                break;
            case HeapEvent::Kind::step:
                fmt::format_to(out, "step\n");
                break;
        }
    }
    return text;
}

}  // namespace frostline
