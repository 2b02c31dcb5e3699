// Pairs of allocate and free in steady state: one at a time, and batches that are freed in reverse
// or in a random order. Ours and the other allocators by turns, so that the machine's drift hits
// all; nobody touches the blocks.
#include "bench/heaps_machine.h"
#include "bench/heaps_rows.h"
#include "bench/other_allocators.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <ctime>
#include <mutex>
#include <numeric>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace frostline::bench {
namespace {

constexpr std::size_t kBatch = 10'000;
// A sample is one batch, because a short one is seldom interrupted by other programs; the median
// leaves out those that were.
constexpr int kTurns = 15;
constexpr int kOursInATurn = 3;
constexpr int kFewTurns = 5;  // for an allocator that takes longer than kSlowNs
constexpr double kSlowNs = 5000;
constexpr int kWarmUps = 80;  // batches, so that the heap has seen that it no longer grows
// Long enough for the scheduler to give each thread a processor of its own.
constexpr unsigned kThreadRounds = 200;
constexpr int kThreadTurns = 21;
constexpr double kBudgetNs = 40;
constexpr double kTimesFaster = 5;
constexpr double kTwoThreads = 1.8;
constexpr double kNsPerSecond = 1e9;

struct Size {
    const char* name;
    std::uint64_t bytes;
    std::uint64_t chunk_bytes = kChunkBytes;
};
// A batch of 64 MiB is 640 GB: in chunks of 2 MiB it would take more mappings than the kernel
// allows a process.
constexpr std::array kSizes = {Size{"512 B", 512}, Size{"4 KiB", 4096}, Size{"64 KiB", 65536},
                               Size{"2 MiB", 2 * kMib},
                               Size{"64 MiB, chunks of 64 MiB", 64 * kMib, 64 * kMib}};

enum class Order { one_by_one, last_first, shuffled };

const char* words(Order order) {
    switch (order) {
        case Order::one_by_one:
            return "one by one";
        case Order::last_first:
            return "last in first out";
        case Order::shuffled:
            return "shuffled";
    }
    return "";
}

// Blocks of one batch, and the order in which they are freed.
struct Batch {
    explicit Batch(Order order) : blocks(order == Order::one_by_one ? 1 : kBatch), frees(blocks) {
        std::iota(frees.begin(), frees.end(), 0U);
        std::reverse(frees.begin(), frees.end());
        if (order == Order::shuffled) {
            std::shuffle(frees.begin(), frees.end(), std::mt19937(1));  // NOLINT: always the same
        }
    }
    template <class Allocate, class Free>
    void run(std::size_t pairs, const Allocate& allocate, const Free& free) {
        for (std::size_t done = 0; done < pairs; done += held.size()) {
            for (void*& block : held) block = allocate();
            for (const std::uint32_t i : frees) free(held[i]);
        }
    }

    std::size_t blocks;
    std::vector<std::uint32_t> frees;
    std::vector<void*> held = std::vector<void*>(blocks);
};

double batches_ns(Batch& batch, DeviceHeap& heap, std::uint64_t size_bytes, unsigned rounds = 1) {
    const std::size_t pairs = rounds * kBatch;
    return kNsPerSecond / static_cast<double>(pairs) * seconds([&] {
               batch.run(
                   pairs, [&] { return take(heap, size_bytes); },
                   [&](void* block) { give(heap, block); });
           });
}

double batch_ns(Batch& batch, const OtherAllocator& other, std::uint64_t size_bytes) {
    return kNsPerSecond / kBatch * seconds([&] {
               batch.run(
                   kBatch,
                   [&] {
                       void* const block = other.allocate(size_bytes);
                       if (block == nullptr)
                           throw std::runtime_error(other.name + " has no memory");
                       return block;
                   },
                   other.free);
           });
}

struct PairTimes {
    Measurement ours;
    std::vector<Measurement> others;
};

PairTimes time_pairs(DeviceHeap& heap, const std::vector<OtherAllocator>& others,
                     std::uint64_t size_bytes, Order order) {
    Batch batch(order);
    (void)batches_ns(batch, heap, size_bytes, kWarmUps);
    std::vector<double> ours;
    std::vector<std::vector<double>> theirs(others.size());
    std::vector<int> turns(others.size());
    for (std::size_t k = 0; k < others.size(); ++k) {
        turns[k] = batch_ns(batch, others[k], size_bytes) > kSlowNs ? kFewTurns : kTurns;
    }
    for (int turn = 0; turn < kTurns; ++turn) {
        (void)batches_ns(batch, heap, size_bytes);  // what the others left in the caches goes
        for (int i = 0; i < kOursInATurn; ++i) {
            ours.push_back(batches_ns(batch, heap, size_bytes));
        }
        for (std::size_t k = 0; k < others.size(); ++k) {
            if (turn >= turns[k]) continue;
            (void)batch_ns(batch, others[k], size_bytes);
            theirs[k].push_back(batch_ns(batch, others[k], size_bytes));
        }
    }
    PairTimes times{summarize(std::move(ours)), {}};
    for (auto& samples : theirs) times.others.push_back(summarize(std::move(samples)));
    return times;
}

void add_rows(std::vector<Row>& rows, const std::string& what, const PairTimes& times,
              const std::vector<OtherAllocator>& others, double least) {
    rows.push_back(heap_row(what, "ns", times.ours, "the budget of a pair", kBudgetNs, 1));
    for (std::size_t i = 0; i < others.size(); ++i) {
        Row row = heap_row(fmt::format("  {}", others[i].name), "ns", times.others[i],
                           "ours, same run", times.ours.median, least);
        row.label = "real";
        row.at_most = false;
        rows.push_back(std::move(row));
    }
}

// What `threads` threads do at once, each on batches of its own.
struct ThreadsTime {
    double wall_s = 0;
    double processor_s = 0;  // of a thread, on average
};

double processor_s() {
    timespec now{};
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) != 0) {
        throw std::runtime_error("a thread's processor time cannot be read");
    }
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / kNsPerSecond;
}

// Every thread holds its first batch before any of them frees: so the heap has memory for all at
// once, as in a training run that has seen its peak.
ThreadsTime time_threads(DeviceHeap& heap, std::uint64_t size_bytes, Order order,
                         unsigned threads) {
    std::barrier together(threads);
    std::mutex mutex;
    std::string failure;  // under mutex
    using Clock = std::chrono::steady_clock;
    struct Run {
        Clock::time_point start, end;
        double processor_s = 0;
    };
    std::vector<Run> runs(threads);
    std::vector<std::thread> running;
    for (unsigned i = 0; i < threads; ++i) {
        running.emplace_back([&, i] {
            Batch batch(order);
            try {
                for (void*& block : batch.held) block = take(heap, size_bytes);
                together.arrive_and_wait();
                for (const std::uint32_t k : batch.frees) give(heap, batch.held[k]);
                (void)batches_ns(batch, heap, size_bytes);
                together.arrive_and_wait();
                Run run{Clock::now(), {}, -processor_s()};
                (void)batches_ns(batch, heap, size_bytes, kThreadRounds);
                run.processor_s += processor_s();
                run.end = Clock::now();
                runs[i] = run;
            } catch (const std::exception& error) {
                const std::lock_guard lock(mutex);
                failure = error.what();
                together.arrive_and_drop();
            }
        });
    }
    for (std::thread& thread : running) thread.join();
    if (!failure.empty()) throw std::runtime_error(failure);
    // From the first start to the last end, by the threads' own clocks: whoever starts them may be
    // late itself, and would miss what they did until then.
    Run all = runs.front();
    for (const Run& run : std::span(runs).subspan(1)) {
        all.start = std::min(all.start, run.start);
        all.end = std::max(all.end, run.end);
        all.processor_s += run.processor_s;
    }
    return {std::chrono::duration<double>(all.end - all.start).count(), all.processor_s / threads};
}

void add_thread_rows(std::vector<Row>& rows, const HeapMachine& machine, const Size& size,
                     Order order) {
    const auto heap = machine.heap(size.chunk_bytes);
    std::array<std::vector<double>, 4> rates;  // wall of 2 threads and 1, processor of 2 and 1
    for (int i = -kFewTurns; i < kThreadTurns; ++i) {
        for (const unsigned threads : {2U, 1U}) {
            const ThreadsTime time = time_threads(*heap, size.bytes, order, threads);
            const double pairs = threads * kThreadRounds * kBatch / 1e6;
            if (i < 0) continue;
            rates[2 - threads].push_back(pairs / time.wall_s);
            rates[4 - threads].push_back(pairs / time.processor_s);
        }
    }
    const auto add = [&](const char* what, std::size_t first, double bar) {
        const double one = summarize(rates[first + 1]).median;
        Row row = heap_row(fmt::format("{} {}, {}", size.name, words(order), what), "pairs/us",
                           summarize(rates[first]), "one thread", one, bar);
        row.at_most = false;
        rows.push_back(std::move(row));
    };
    add("2 threads", 0, kTwoThreads);
    add("2 threads, processor time", 2, 0);
}

}  // namespace

std::vector<Row> pair_rows() {
    const std::vector<OtherAllocator> others = {load_jemalloc(), load_mimalloc()};
    const HeapMachine machine(kBatch * 66 * kMib);
    std::vector<Row> rows;
    for (const Size& size : kSizes) {
        for (const Order order : {Order::one_by_one, Order::last_first, Order::shuffled}) {
            const auto heap = machine.heap(size.chunk_bytes);
            const PairTimes times = time_pairs(*heap, others, size.bytes, order);
            const bool even = size.bytes == 4096 && order == Order::shuffled;
            add_rows(rows, fmt::format("{}, {}", size.name, words(order)), times, others,
                     size.bytes >= 2 * kMib ? kTimesFaster
                     : even                 ? 1
                                            : 0);
        }
    }
    for (const Size& size : std::span(kSizes).first(4)) {
        for (const Order order : {Order::last_first, Order::shuffled}) {
            add_thread_rows(rows, machine, size, order);
        }
    }
    return rows;
}

}  // namespace frostline::bench
