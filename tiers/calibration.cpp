// The order of a measurement: writing, then reading what was written, then the latency of a page
// each way, and for pmem how many writers pay. Each part has a deadline of its own.
#include "tiers/calibration.h"

#include "tiers/calibration_streams.h"
#include "tiers/clock.h"
#include "tiers/page.h"

#include <algorithm>
#include <bit>
#include <future>
#include <new>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace frostline {
namespace {

constexpr std::uint64_t kMostSampleBytes = std::uint64_t{64} << 20;
constexpr std::uint64_t kPieceBytes = std::uint64_t{4} << 20;
constexpr std::size_t kSamples = 5;
constexpr std::size_t kLatencySamples = 31;
constexpr std::size_t kWriterRounds = 3;

// When each part of a measurement ends, in hundredths of its time.
constexpr std::uint64_t kWriteEnds = 35;
constexpr std::uint64_t kReadEnds = 65;
constexpr std::uint64_t kWriteLatencyEnds = 72;
constexpr std::uint64_t kReadLatencyEnds = 80;

std::uint64_t rate(std::uint64_t bytes, std::uint64_t ns) {
    return static_cast<std::uint64_t>(static_cast<double>(bytes) * 1e9 /
                                      static_cast<double>(std::max<std::uint64_t>(ns, 1)));
}

std::uint64_t median(std::vector<std::uint64_t>& values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

struct Deadlines {
    std::uint64_t start_ns, budget_ns;
    std::uint64_t at(std::uint64_t hundredths) const {
        return start_ns + budget_ns / 100 * hundredths;
    }
};

using Direction = Transfer::Direction;
using Clock = std::function<std::uint64_t()>;

// The median over several passes. Each begins at the start of the room, so that what the first one
// wrote is what the later ones write and read again.
Result<std::uint64_t> bandwidth(CalibrationStreams& streams, Direction direction,
                                std::uint64_t limit_bytes, std::uint64_t deadline_ns,
                                const Clock& now_ns, std::uint64_t& reached_bytes) {
    std::vector<std::uint64_t> rates;
    std::uint64_t now = now_ns();
    const std::uint64_t slice_ns = (std::max(deadline_ns, now) - now) / (kSamples + 1);
    do {
        const std::uint64_t start = now;
        FROSTLINE_TRY(const std::uint64_t bytes,
                      streams.pass(direction, limit_bytes, start + slice_ns));
        now = now_ns();
        reached_bytes = std::max(reached_bytes, bytes);
        rates.push_back(rate(bytes, now - start));
    } while (rates.size() < kSamples + 1 && now < deadline_ns);
    // The first pass pays for page faults and for blocks that were never written.
    if (rates.size() > 1) rates.erase(rates.begin());
    return median(rates);
}

Result<std::uint64_t> page_latency(CalibrationStreams& streams, Direction direction,
                                   std::uint64_t limit_bytes, std::uint64_t deadline_ns,
                                   const Clock& now_ns) {
    std::vector<std::uint64_t> times;
    std::uint64_t now = now_ns();
    do {
        const std::uint64_t start = now;
        FROSTLINE_TRY_VOID(streams.one_page(direction, times.size(), limit_bytes));
        now = now_ns();
        times.push_back(now - start);
    } while (times.size() < kLatencySamples && now < deadline_ns);
    return median(times);
}

// One round of `writers` threads, each on pieces of its own.
Result<std::uint64_t> write_together(CalibrationStreams& streams, std::uint32_t writers,
                                     std::uint64_t until_ns, const Clock& now_ns) {
    const std::uint64_t start = now_ns();
    // Destroying one waits for its thread, whatever happened to the others.
    std::vector<std::future<Result<std::uint64_t>>> threads;
    for (std::uint32_t i = 0; i < writers; ++i) {
        threads.push_back(std::async(std::launch::async, [&streams, i, writers, until_ns] {
            return streams.write_every_nth_piece(i, writers, until_ns);
        }));
    }
    std::uint64_t bytes = 0;
    std::optional<Error> failure;
    for (auto& thread : threads) {
        const Result<std::uint64_t> written = thread.get();
        if (written) bytes += *written;
        if (!written) failure = written.error();
    }
    if (failure) return *failure;
    return rate(bytes, now_ns() - start);
}

// In rounds, so that a disturbance does not hit one number of writers alone.
Result<std::uint32_t> best_writers(CalibrationStreams& streams, std::uint32_t most,
                                   std::uint64_t deadline_ns, const Clock& now_ns) {
    std::vector<WriterRate> counts;
    for (std::uint32_t writers = 1; writers <= std::min<std::size_t>(most, streams.pieces());
         writers *= 2) {
        counts.push_back({writers, 0});
    }
    if (counts.size() < 2) return 1;
    const std::uint64_t now = now_ns();
    const std::uint64_t slice_ns =
        (std::max(deadline_ns, now) - now) / (kWriterRounds * counts.size());
    std::vector<std::vector<std::uint64_t>> rates(counts.size());
    for (std::size_t round = 0; round < kWriterRounds; ++round) {
        for (std::size_t i = 0; i < counts.size(); ++i) {
            const std::uint64_t start = now_ns();
            if (start >= deadline_ns && !rates[i].empty()) continue;
            FROSTLINE_TRY(const std::uint64_t measured,
                          write_together(streams, counts[i].writers, start + slice_ns, now_ns));
            rates[i].push_back(measured);
        }
    }
    for (std::size_t i = 0; i < counts.size(); ++i) counts[i].bytes_per_s = median(rates[i]);
    return fewest_good_writers(counts);
}

Result<Calibration> measure(Tier& tier, const CalibrationOptions& options, const Clock& now_ns) {
    const Deadlines deadlines{now_ns(), options.budget_ns};
    const std::uint64_t total = calibration_sample_bytes(tier);
    if (total == 0) {
        return Error(Errc::no_space, 0, "there is no room in the tier to measure it on");
    }
    const std::uint64_t piece = std::min(total, kPieceBytes);
    FROSTLINE_TRY(auto streams, CalibrationStreams::create({.tier = &tier,
                                                            .piece_bytes = piece,
                                                            .pieces = total / piece,
                                                            .patience_ns = options.budget_ns / 16,
                                                            .now_ns = &now_ns}));
    Calibration out{.speed = {}, .sample_bytes = streams->pieces() * piece};
    TierSpeed& speed = out.speed;
    std::uint64_t written = 0;
    std::uint64_t read = 0;
    FROSTLINE_TRY(speed.write_bytes_per_s, bandwidth(*streams, Direction::write, out.sample_bytes,
                                                     deadlines.at(kWriteEnds), now_ns, written));
    FROSTLINE_TRY(speed.read_bytes_per_s, bandwidth(*streams, Direction::read, written,
                                                    deadlines.at(kReadEnds), now_ns, read));
    FROSTLINE_TRY(speed.write_latency_ns, page_latency(*streams, Direction::write, written,
                                                       deadlines.at(kWriteLatencyEnds), now_ns));
    FROSTLINE_TRY(speed.read_latency_ns, page_latency(*streams, Direction::read, written,
                                                      deadlines.at(kReadLatencyEnds), now_ns));
    const bool time_is_left = now_ns() < deadlines.at(100);
    if (tier.info().kind == TierKind::pmem && time_is_left) {
        const std::uint32_t cpus = std::max(1U, std::thread::hardware_concurrency());
        const std::uint32_t most = options.most_writers > 0 ? options.most_writers : cpus;
        FROSTLINE_TRY(speed.best_writers, best_writers(*streams, most, deadlines.at(100), now_ns));
    }
    return out;
}

}  // namespace

std::uint64_t calibration_sample_bytes(const Tier& tier) noexcept {
    const std::uint64_t capacity = tier.info().capacity_bytes;
    const std::uint64_t free = capacity - std::min(capacity, tier.usage().used_bytes);
    const std::uint64_t total = std::min(free / 4, kMostSampleBytes);
    if (total >= kPieceBytes) return total / kPieceBytes * kPieceBytes;
    // In a tiny tier a page says more than nothing.
    return free < kPageBytes ? 0 : std::max(std::bit_floor(total), kPageBytes);
}

Result<Calibration> calibrate(Tier& tier, const CalibrationOptions& options) noexcept {
    try {
        return measure(tier, options, options.now_ns ? options.now_ns : Clock(monotonic_ns));
    } catch (const std::bad_alloc&) {
        return Error(Errc::out_of_memory, 0, "no memory to measure a tier");
    } catch (const std::system_error& error) {
        return system_error(error.code().value(), "no thread can be started to measure a tier");
    }
}

std::uint32_t fewest_good_writers(std::span<const WriterRate> rates) noexcept {
    std::uint64_t best = 0;
    for (const WriterRate& each : rates) best = std::max(best, each.bytes_per_s);
    for (const WriterRate& each : rates) {
        if (each.bytes_per_s >= best - best / 20) return each.writers;
    }
    return 1;
}

}  // namespace frostline
