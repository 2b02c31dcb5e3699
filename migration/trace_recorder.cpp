// Events of a step, written as kernels: `store` writes its tensor, `use` reads it.
#include "migration/trace_recorder.h"

#include "migration/planning/trace_builder.h"

#include <fmt/format.h>

#include <cstddef>
#include <map>
#include <new>
#include <span>
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

Result<Trace> TraceRecorder::trace() const noexcept {
    try {
        const Step& step = last_.events.empty() ? current_ : last_;
        TraceBuilder builder;
        std::map<TensorId, TensorIndex> places;
        for (const Event& event : step.events) {
            const auto [entry, is_new] = places.try_emplace(event.tensor);
            if (!is_new) continue;
            FROSTLINE_TRY(entry->second,
                          builder.add_tensor(places.size() - 1, event.size_bytes, "activation"));
        }
        for (std::size_t i = 0; i < step.events.size(); ++i) {
            const Event& event = step.events[i];
            const std::uint64_t next =
                i + 1 < step.events.size() ? step.events[i + 1].time_ns : step.end_ns;
            // A kernel lasts at least a nanosecond; the step in progress has no end yet.
            const std::uint64_t duration_ns =
                next > event.time_ns ? next - event.time_ns : std::uint64_t{1};
            const std::span<const TensorIndex> used(&places.at(event.tensor), 1);
            FROSTLINE_TRY_VOID(event.kind == Kind::stored
                                   ? builder.add_kernel(duration_ns, "store", {}, used)
                                   : builder.add_kernel(duration_ns, "use", used, {}));
        }
        return builder.finish();
    } catch (const std::bad_alloc&) {
        return Error(Errc::out_of_memory, 0, "no memory for the trace of a step");
    }
}

std::string TraceRecorder::text() const {
    const Result<Trace> made = trace();
    if (made) return to_text(*made);
    if (made.error().code() == Errc::out_of_memory) throw std::bad_alloc();
    return fmt::format("{}\n", kTraceFormat);
}

}  // namespace frostline
