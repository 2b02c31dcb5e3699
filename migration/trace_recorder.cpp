// Events of a step, written as kernels: `store` writes its tensor, `use` reads it.
#include "migration/trace_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <new>
#include <utility>

namespace frostline {

void TraceRecorder::stored(TensorId tensor, std::uint64_t size_bytes,
                           std::uint64_t time_ns) noexcept {
    add({Kind::stored, tensor, size_bytes, time_ns});
}

void TraceRecorder::used(TensorId tensor, std::uint64_t size_bytes,
                         std::uint64_t time_ns) noexcept {
    add({Kind::used, tensor, size_bytes, time_ns});
}

void TraceRecorder::add(const Event& event) noexcept {
    if (current_.incomplete) return;
    if (current_.events.size() == kMaxEvents) {
        current_.events.clear();
        current_.incomplete = true;
        return;
    }
    try {
        current_.events.push_back(event);
    } catch (const std::bad_alloc&) {
        current_ = Step{};
        current_.incomplete = true;
    }
}

void TraceRecorder::end_step(std::uint64_t time_ns) noexcept {
    current_.end_ns = time_ns;
    if (!current_.incomplete && !current_.events.empty()) std::swap(last_, current_);
    current_.events.clear();  // keeps its room, so that later steps allocate nothing
    current_.incomplete = false;
}

std::string TraceRecorder::text() const {
    const Step& step = last_.events.empty() ? current_ : last_;
    std::map<TensorId, std::size_t> numbers;
    std::string out = "frostline-trace 1\n";
    for (const Event& event : step.events) {
        const auto [entry, is_new] = numbers.try_emplace(event.tensor, numbers.size());
        if (is_new) {
            fmt::format_to(std::back_inserter(out), "tensor {} {} activation\n", entry->second,
                           event.size_bytes);
        }
    }
    for (std::size_t i = 0; i < step.events.size(); ++i) {
        const Event& event = step.events[i];
        const std::uint64_t next =
            i + 1 < step.events.size() ? step.events[i + 1].time_ns : step.end_ns;
        // A kernel lasts at least a nanosecond; the step in progress has no end yet.
        const std::uint64_t duration_ns =
            next > event.time_ns ? next - event.time_ns : std::uint64_t{1};
        const std::size_t id = numbers.at(event.tensor);
        if (event.kind == Kind::stored) {
            fmt::format_to(std::back_inserter(out), "kernel {} {} store - {}\n", i, duration_ns,
                           id);
        } else {
            fmt::format_to(std::back_inserter(out), "kernel {} {} use {} -\n", i, duration_ns, id);
        }
    }
    return out;
}

}  // namespace frostline
