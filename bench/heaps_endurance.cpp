// Whether a heap stays as it is: a million steps of random sizes, told by tenths, and how much it
// has to remember of the blocks that it manages.
#include "bench/heaps_machine.h"
#include "bench/heaps_rows.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

namespace frostline::bench {
namespace {

constexpr std::size_t kSteps = 1'000'000;
constexpr std::size_t kTenths = 10;
constexpr std::uint64_t kMostLiveBytes = 2048 * kMib;
constexpr double kSlowdown = 1.25;    // later tenths against earlier ones
constexpr double kMoreMapped = 1.05;  // at the end than after half of the steps
constexpr double kRecords = 1e-3;
constexpr std::size_t kRecordBlocks = 20'000;

// Sizes from 512 bytes to 32 MiB, of which each power of two is as likely as the next; a step makes
// room for its block by freeing others at random.
class RandomSteps {
   public:
    explicit RandomSteps(DeviceHeap& heap) : heap_(heap) {}

    void run(std::size_t steps) {
        for (std::size_t i = 0; i < steps; ++i) {
            const auto size = static_cast<std::uint64_t>(std::exp2(exponent_(random_)));
            while (live_bytes_ + size > kMostLiveBytes) free_one();
            blocks_.push_back({take(heap_, size), size});
            live_bytes_ += size;
            peak_bytes_ = std::max(peak_bytes_, live_bytes_);
        }
    }
    std::uint64_t peak_bytes() const { return peak_bytes_; }

   private:
    struct Block {
        void* start;
        std::uint64_t size_bytes;
    };

    void free_one() {
        std::swap(blocks_[random_() % blocks_.size()], blocks_.back());
        give(heap_, blocks_.back().start);
        live_bytes_ -= blocks_.back().size_bytes;
        blocks_.pop_back();
    }

    DeviceHeap& heap_;
    std::mt19937_64 random_{1};  // NOLINT: the same steps in each run
    std::uniform_real_distribution<double> exponent_{9, 25};
    std::vector<Block> blocks_;
    std::uint64_t live_bytes_ = 0;
    std::uint64_t peak_bytes_ = 0;
};

std::vector<Row> million_steps() {
    const HeapMachine machine(2 * kMostLiveBytes);
    const auto heap = machine.heap();
    RandomSteps steps(*heap);
    std::vector<double> early;
    std::vector<double> late;
    std::uint64_t mapped_at_half = 0;
    for (std::size_t tenth = 0; tenth < kTenths; ++tenth) {
        const double time = seconds([&] { steps.run(kSteps / kTenths); });
        const double ns = time * 1e9 * kTenths / kSteps;
        fmt::print("tenth {:>2} of {} random steps: {:.0f} ns a step, {} MiB mapped\n", tenth + 1,
                   kSteps, ns, heap->statistics().mapped / kMib);
        (tenth < kTenths / 2 ? early : late).push_back(ns);
        if (tenth + 1 == kTenths / 2) mapped_at_half = heap->statistics().mapped;
    }
    const auto peak = static_cast<double>(steps.peak_bytes()) / kMib;
    const auto mapped = static_cast<double>(heap->statistics().peak_mapped) / kMib;
    const double half = static_cast<double>(mapped_at_half) / kMib;
    return {
        heap_row("random steps, last five tenths", "ns", summarize(late), "the first five",
                 summarize(early).median, kSlowdown),
        heap_row("random steps, most mapped", "MiB", {mapped, 0}, "after half of the steps", half,
                 kMoreMapped),
        heap_row("random steps, most mapped", "MiB", {mapped, 0}, "peak of living bytes", peak)};
}

std::vector<Row> records() {
    const HeapMachine machine(2 * kRecordBlocks * kMib);
    const auto heap = machine.heap();
    for (std::size_t i = 0; i < kRecordBlocks; ++i) (void)take(*heap, kMib);
    const HeapStatistics statistics = heap->statistics();
    const auto kib = [](std::uint64_t bytes) { return static_cast<double>(bytes) / 1024; };
    return {heap_row("records of 20,000 blocks of 1 MiB", "KiB", {kib(statistics.metadata), 0},
                     "managed bytes", kib(statistics.mapped), kRecords)};
}

}  // namespace

std::vector<Row> endurance_rows() {
    std::vector<Row> rows = million_steps();
    for (Row& row : records()) rows.push_back(std::move(row));
    return rows;
}

}  // namespace frostline::bench
