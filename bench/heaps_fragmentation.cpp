// Replays what training steps asked of their allocator, in full, on chunks of 2 MiB. What PyTorch's
// rules reserve for the same stream is a model of them, and called simulated.
#include "bench/allocation_stream.h"
#include "bench/caching_model.h"
#include "bench/heaps_machine.h"
#include "bench/heaps_rows.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

namespace frostline::bench {
namespace {

constexpr unsigned kTimes = 4;
constexpr double kTraceBar = 1.03;
constexpr double kAllocationsBar = 1.10;

struct Replay {
    std::uint64_t peak_mapped_bytes = 0;
    double us_per_event = 0;
};

// The time is that of the events from `timed_from` on.
Replay replay(const AllocationStream& stream, std::size_t timed_from = 0) {
    const HeapMachine machine(stream.peak_live_bytes / kMib * 2 * kMib + 64 * kMib);
    const auto heap = machine.heap();
    std::vector<void*> blocks(stream.blocks);
    const auto run = [&](std::span<const AllocationEvent> events) {
        for (const AllocationEvent& event : events) {
            void*& block = blocks[event.block];
            if (event.size_bytes == 0) {
                give(*heap, block);
            } else {
                block = take(*heap, event.size_bytes);
            }
        }
    };
    const std::span<const AllocationEvent> events(stream.events);
    run(events.first(timed_from));
    const auto timed = events.subspan(timed_from);
    const double time = seconds([&] { run(timed); });
    return {heap->statistics().peak_mapped, time * 1e6 / static_cast<double>(timed.size())};
}

void add_rows(std::vector<Row>& rows, const AllocationStream& stream, double bar) {
    const auto mib = [](std::uint64_t bytes) { return static_cast<double>(bytes) / kMib; };
    const double live = mib(stream.peak_live_bytes);
    const auto add = [&](const std::string& name, std::uint64_t bytes, double most) {
        rows.push_back(heap_row(name, "MiB", {mib(bytes), 0}, "peak of living bytes", live, most));
    };
    if (stream.events.empty()) throw std::runtime_error(stream.name + " has no allocations");
    const Replay once = replay(stream);
    const AllocationStream repeated = repeat(stream, kTimes);
    const Replay again = replay(repeated, repeated.events.size() / kTimes * (kTimes - 1));
    add(stream.name + ": mapped", once.peak_mapped_bytes, bar);
    add(fmt::format("{}: mapped, {} times in a row", stream.name, kTimes), again.peak_mapped_bytes,
        bar);
    add("  PyTorch's default rules", caching_model_peak_bytes(stream), 0);
    rows.back().label = "simulated";
    const auto time = [&](const std::string& name, const Replay& replayed) {
        rows.push_back(heap_row(name, "us/event", {replayed.us_per_event, 0}, "", 0));
    };
    time(stream.name + ": replay, the heap growing", once);
    time(stream.name + ": replay, the last time in a row", again);
}

}  // namespace

std::vector<Row> fragmentation_rows() {
    std::vector<Row> rows;
    const std::string folder = FROSTLINE_SHARED;
    const auto add_all = [&](const char* below, const char* ending, auto load, double bar) {
        std::vector<std::string> paths;
        if (!std::filesystem::is_directory(folder + below)) return;
        for (const auto& file : std::filesystem::directory_iterator(folder + below)) {
            if (file.path().extension() == ending) paths.push_back(file.path());
        }
        std::sort(paths.begin(), paths.end());
        for (const std::string& path : paths) add_rows(rows, load(path), bar);
    };
    add_all("/traces", ".trace", load_trace, kTraceBar);
    add_all("/allocs", ".allocs", load_allocations, kAllocationsBar);
    if (rows.empty()) {
        fmt::print("no recorded streams: {} is missing; a generated one is replayed\n", folder);
        add_rows(rows, generate_allocations(), kAllocationsBar);
    }
    return rows;
}

std::vector<Row> replay_rows(const std::string& path) {
    std::vector<Row> rows;
    add_rows(rows, load_allocations(path), kAllocationsBar);
    return rows;
}

}  // namespace frostline::bench
