// The hot paths of the allocator folder: pin and unpin (budget 20 ns a pair), and the birth and
// death of a record. The baseline of a pin is one uncontended atomic increment and decrement, which
// is what a bare reference count would cost.
#include "allocator/residency.h"
#include "allocator/tensor_table.h"
#include "bench/suite.h"

#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

namespace frostline::bench {
namespace {

constexpr int kRepetitions = 9;
constexpr int kPairs = 2'000'000;
constexpr double kNsPerSecond = 1e9;

void pin_pairs(Residency& word) {
    for (int i = 0; i < kPairs; ++i) {
        if (word.pin(1, Access::read) != Residency::PinResult::pinned || word.unpin()) std::abort();
    }
}

double pin_ns() {
    Residency word;
    word.reset(TierId{0}, 1);
    return seconds([&] { pin_pairs(word); }) / kPairs * kNsPerSecond;
}

double count_ns() {
    std::atomic<std::uint64_t> count{0};
    const double time = seconds([&] {
        for (int i = 0; i < kPairs; ++i) {
            count.fetch_add(1, std::memory_order_acq_rel);
            count.fetch_sub(1, std::memory_order_acq_rel);
        }
    });
    return time / kPairs * kNsPerSecond;
}

// Two threads, each with a word of its own on a line of its own: nothing is shared, so nothing may
// slow down.
double two_threads_pin_ns() {
    struct alignas(128) Line {
        Residency word;
    };
    std::vector<Line> lines(2);
    for (Line& line : lines) line.word.reset(TierId{0}, 1);
    const double time = seconds([&] {
        std::thread other([&] { pin_pairs(lines[1].word); });
        pin_pairs(lines[0].word);
        other.join();
    });
    return time / kPairs * kNsPerSecond;
}

double birth_and_death_ns() {
    constexpr int kTensors = 100'000;
    TensorTable table;
    const TensorCopy copy{Extent{TierId{0}, 0, 1}, std::nullopt};
    const double time = seconds([&] {
        for (int i = 0; i < kTensors; ++i) {
            const auto tensor = table.create(1, copy);
            if (!tensor) std::abort();
            if ((*tensor)->residency.release() != Residency::ReleaseResult::retire) std::abort();
            table.erase(**tensor);
        }
    });
    return time / kTensors * kNsPerSecond;
}

}  // namespace

std::vector<Row> residency_suite() {
    const auto row = [](const char* name, const Comparison& comparison) {
        return compare_row("residency", name, "ns", "atomic add and subtract", "real", comparison);
    };
    return {
        row("pin and unpin", alternate(kRepetitions, pin_ns, count_ns)),
        row("pin and unpin, 2 threads", alternate(kRepetitions, two_threads_pin_ns, count_ns)),
        row("birth and death in the table", alternate(kRepetitions, birth_and_death_ns, count_ns))};
}

}  // namespace frostline::bench
