// DRAM to swap and back, both at once, and small extents, each against fio with the same blocks and
// depth in the same folder, alternated. Both write blocks that were written before.
#include "bench/swap_rows.h"

#include "bench/fio.h"
#include "bench/media.h"
#include "tiers/swap_tier.h"

#include <fmt/core.h>

#include <functional>

namespace frostline::bench {
namespace {

constexpr int kRepetitions = 7;
constexpr std::uint64_t kBlockBytes = std::uint64_t{512} << 10;
constexpr std::size_t kDepth = 32;
constexpr std::uint64_t kTotalBytes = std::uint64_t{1} << 30;
constexpr std::uint64_t kExtentBytes = std::uint64_t{32} << 20;
constexpr std::uint64_t kSmallTotalBytes = std::uint64_t{128} << 20;
constexpr std::uint64_t kSmallBytes = 4096;

// Measures ours and fio's by turns, and tells the speed and what it cost the CPU.
class Contest {
   public:
    Contest(std::string name, std::string unit, double units_per_byte, double bar)
        : name_(std::move(name)), unit_(std::move(unit)), per_byte_(units_per_byte), bar_(bar) {}

    void add_rows(std::vector<Row>& rows, std::uint64_t total_bytes,
                  const std::function<CopyTime()>& ours, const FioJob& job) {
        std::vector<double> our_cpu;
        std::vector<double> fio_cpu;
        const double gib = static_cast<double>(total_bytes) / kGib;
        const auto our_speed = [&] {
            const CopyTime time = ours();
            our_cpu.push_back(time.cpu_s * 1e3 / gib);
            return static_cast<double>(total_bytes) / time.seconds * per_byte_;
        };
        const auto fio_speed = [&] {
            const FioResult result = run_fio(job);
            fio_cpu.push_back(result.cpu_s * 1e3 / gib);
            return result.bytes_per_s * per_byte_;
        };
        // The first of each is the warm-up, which alternate() leaves out of the speeds.
        const auto without_first = [](std::vector<double> samples) {
            samples.erase(samples.begin());
            return summarize(std::move(samples));
        };
        const Comparison speed = alternate(kRepetitions, our_speed, fio_speed);
        const std::string with =
            fmt::format("fio {}, {} KiB, depth {}", job.pattern, job.block_bytes / 1024, job.depth);
        rows.push_back(compare_row("tiers", name_, unit_, with, "real", speed, bar_));
        rows.push_back(compare_row("tiers", name_ + ", CPU", "ms/GiB", with, "real",
                                   {without_first(our_cpu), without_first(fio_cpu)}));
    }

   private:
    std::string name_;
    std::string unit_;
    double per_byte_;
    double bar_;
};

std::unique_ptr<SwapTier> swap_in(const BenchFolder& folder, std::uint64_t bytes) {
    auto swap = expect(SwapTier::create({.id = TierId{1},
                                         .places = {folder.path()},
                                         .size_bytes = bytes,
                                         .growth_bytes = bytes,
                                         .queue_depth = kDepth,
                                         .block_bytes = kBlockBytes}));
    if (!swap->info().fallback.empty()) {
        throw std::runtime_error("the swap tier cannot use its full speed: " +
                                 swap->info().fallback);
    }
    return swap;
}

void large_rows(std::vector<Row>& rows) {
    const BenchFolder folder;
    const auto dram = expect(DramTier::create({.capacity_bytes = 2 * kTotalBytes}));
    const auto swap = swap_in(folder, 2 * kTotalBytes);
    const auto engine = expect(CopyEngine::create({}));
    const Extents memory(*dram, kTotalBytes, kExtentBytes);
    const Extents disk(*swap, kTotalBytes, kExtentBytes);
    memory.fill();
    FioJob job{folder.path(), "write", kBlockBytes, kDepth, kTotalBytes};
    Contest("dram to swap", "GiB/s", 1 / kGib, 0.90)
        .add_rows(
            rows, kTotalBytes,
            [&] {
                return run_copies(*engine, {{&memory, &disk}});
            },
            job);
    job.pattern = "read";
    Contest("swap to dram", "GiB/s", 1 / kGib, 0.90)
        .add_rows(
            rows, kTotalBytes,
            [&] {
                return run_copies(*engine, {{&disk, &memory}});
            },
            job);
    // Half of the bytes each way.
    const Extents half_memory(*dram, kTotalBytes / 2, kExtentBytes);
    const Extents half_disk(*swap, kTotalBytes / 2, kExtentBytes);
    const Extents other_memory(*dram, kTotalBytes / 2, kExtentBytes);
    const Extents other_disk(*swap, kTotalBytes / 2, kExtentBytes);
    half_memory.fill();
    other_memory.fill();
    (void)run_copies(*engine, {{&half_memory, &half_disk}, {&other_memory, &other_disk}});
    job.pattern = "rw";
    job.depth = 2 * kDepth;  // ours has a queue for each way
    Contest("both ways at once", "GiB/s", 1 / kGib, 0.85)
        .add_rows(
            rows, kTotalBytes,
            [&] {
                return run_copies(*engine,
                                  {{&half_memory, &half_disk}, {&other_disk, &other_memory}});
            },
            job);
}

void small_rows(std::vector<Row>& rows) {
    const BenchFolder folder;
    const auto dram = expect(DramTier::create({.capacity_bytes = kSmallTotalBytes}));
    const auto swap = swap_in(folder, kSmallTotalBytes);
    const auto engine = expect(CopyEngine::create({}));
    const Extents memory(*dram, kSmallTotalBytes, kSmallBytes);
    Extents disk(*swap, kSmallTotalBytes, kSmallBytes);
    memory.fill();
    disk.shuffle();
    FioJob job{folder.path(), "randwrite", kSmallBytes, kDepth, kSmallTotalBytes};
    Contest("dram to swap, 4 KiB extents", "kIOPS", 1e-3 / kSmallBytes, 0.80)
        .add_rows(
            rows, kSmallTotalBytes,
            [&] {
                return run_copies(*engine, {{&memory, &disk}});
            },
            job);
    job.pattern = "randread";
    Contest("swap to dram, 4 KiB extents", "kIOPS", 1e-3 / kSmallBytes, 0.80)
        .add_rows(
            rows, kSmallTotalBytes,
            [&] {
                return run_copies(*engine, {{&disk, &memory}});
            },
            job);
}

}  // namespace

std::vector<Row> swap_rows() {
    std::vector<Row> rows;
    large_rows(rows);
    small_rows(rows);
    return rows;
}

}  // namespace frostline::bench
