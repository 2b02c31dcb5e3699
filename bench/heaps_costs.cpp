// What is done less often than a pair that a thread's cache serves, and how long it takes: pairs
// that free memory serves, growing, stitching, trimming, and asking for figures.
#include "bench/heaps_machine.h"
#include "bench/heaps_rows.h"
#include "bench/media.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

namespace frostline::bench {
namespace {

constexpr int kRepetitions = 9;
constexpr std::uint64_t kChunks = 128;
constexpr std::uint64_t kStitchedBytes = 64 * kMib;
constexpr double kUsPerSecond = 1e6;

// A heap that is to grow by kChunks, a block in each, and to give them back.
void time_growth(const HeapMachine& machine, std::vector<double>& growth,
                 std::vector<double>& trim) {
    const auto heap = machine.heap();
    std::vector<void*> blocks(kChunks);
    growth.push_back(kUsPerSecond / kChunks * seconds([&] {
                         for (void*& block : blocks) block = take(*heap, kChunkBytes);
                     }));
    for (void* const block : blocks) give(*heap, block);
    trim.push_back(kUsPerSecond / kChunks * seconds([&] { expect(heap->trim(true)); }));
}

// A budget that is used up, every other block of three quarters of a chunk free: what is larger
// than a hole is stitched.
void time_stitching(std::vector<double>& stitching, std::vector<double>& freeing) {
    const HeapMachine machine(kChunks * kChunkBytes);
    const auto heap = machine.heap();
    std::vector<void*> blocks(kChunks / 3 * 2);
    for (void*& block : blocks) block = take(*heap, 3 * kMib);
    for (std::size_t i = 0; i < blocks.size(); i += 2) give(*heap, blocks[i]);
    void* stitched = nullptr;
    stitching.push_back(kUsPerSecond * seconds([&] { stitched = take(*heap, kStitchedBytes); }));
    if (heap->statistics().windows == 0) throw std::runtime_error("nothing was stitched");
    freeing.push_back(kUsPerSecond * seconds([&] { give(*heap, stitched); }));
}

// Blocks that no cache keeps, because the heap is too young: each is cut from the best of a
// thousand holes, and joined with its neighbours again, in another order.
void time_uncached_pairs(const HeapMachine& machine, std::vector<double>& pairs) {
    constexpr std::size_t kHoles = 1000;
    const auto heap = machine.heap();
    std::mt19937_64 random(1);  // NOLINT: the same holes in each run
    std::vector<void*> blocks(2 * kHoles);
    for (void*& block : blocks) block = take(*heap, kMib + random() % (3 * kMib));
    std::shuffle(blocks.begin(), blocks.end(), random);
    for (std::size_t i = 0; i < kHoles; ++i) give(*heap, blocks[i]);
    std::vector<std::uint64_t> sizes(kHoles);
    for (std::uint64_t& size : sizes) size = kMib / 4 + random() % (kMib / 2);
    std::vector<std::size_t> order(kHoles);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    const std::uint64_t mapped = heap->statistics().mapped;
    pairs.push_back(kUsPerSecond / kHoles * seconds([&] {
                        for (std::size_t i = 0; i < kHoles; ++i) blocks[i] = take(*heap, sizes[i]);
                        for (const std::size_t i : order) give(*heap, blocks[i]);
                    }));
    const HeapStatistics now = heap->statistics();
    if (now.mapped != mapped || now.cached != 0) {
        throw std::runtime_error("not all was served from free memory");
    }
}

double statistics_ns(const DeviceHeap& heap) {
    constexpr int kCalls = 1000;
    std::uint64_t seen = 0;
    const double time = seconds([&] {
        for (int i = 0; i < kCalls; ++i) seen += heap.statistics().mapped;
    });
    if (seen == 0) throw std::runtime_error("a heap with blocks says that nothing is mapped");
    return time * 1e9 / kCalls;
}

}  // namespace

std::vector<Row> cost_rows() {
    std::vector<double> growth;
    std::vector<double> trim;
    std::vector<double> stitching;
    std::vector<double> freeing;
    std::vector<double> asking;
    std::vector<double> uncached;
    {
        const HeapMachine machine(8192 * kMib);
        for (int i = 0; i < kRepetitions; ++i) time_uncached_pairs(machine, uncached);
    }
    {
        const HeapMachine machine(2 * kChunks * kChunkBytes);
        for (int i = 0; i < kRepetitions; ++i) time_growth(machine, growth, trim);
        const auto heap = machine.heap();
        (void)take(*heap, kMib);
        for (int i = 0; i < kRepetitions; ++i) asking.push_back(statistics_ns(*heap));
    }
    for (int i = 0; i < kRepetitions; ++i) time_stitching(stitching, freeing);
    const auto row = [](const char* name, const char* unit, std::vector<double>& samples) {
        return heap_row(name, unit, summarize(std::move(samples)), "", 0);
    };
    return {row("a pair from free memory, 250 to 750 KiB", "us", uncached),
            row("growth, a chunk of 2 MiB", "us", growth),
            row("trim, a chunk of 2 MiB", "us", trim),
            row("64 MiB stitched from holes of 3 MiB", "us", stitching),
            row("  freed again", "us", freeing),
            row("statistics()", "ns", asking)};
}

}  // namespace frostline::bench
