// Folders, extents and runs.
#include "bench/media.h"

#include "bench/suite.h"

#include <stdlib.h>
#include <sys/resource.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <optional>
#include <random>

namespace frostline::bench {

BenchFolder::BenchFolder() {
    const char* const directory = std::getenv("TMPDIR");
    path_ = std::string(directory != nullptr ? directory : "/tmp") + "/frostline-bench-XXXXXX";
    if (::mkdtemp(path_.data()) == nullptr) {
        throw std::runtime_error("cannot make a folder " + path_);
    }
}

BenchFolder::~BenchFolder() {
    std::error_code ignored;  // it is in a folder for temporary files
    std::filesystem::remove_all(path_, ignored);
}

Extents::Extents(Tier& tier, std::uint64_t total_bytes, std::uint64_t extent_bytes) : tier_(tier) {
    for (std::uint64_t at = 0; at < total_bytes; at += extent_bytes) {
        extents_.push_back(expect(tier.reserve(extent_bytes)));
    }
}

Extents::~Extents() {
    for (const Extent& each : extents_) tier_.release(each);
}

void Extents::shuffle() {
    std::shuffle(extents_.begin(), extents_.end(), std::mt19937_64(1));
}

void Extents::fill() const {
    std::mt19937_64 random(2);
    for (const Extent& each : extents_) {
        std::byte* const address = tier_.address(each);
        for (std::uint64_t at = 0; at < each.length_bytes; at += sizeof(std::uint64_t)) {
            const std::uint64_t word = random();
            std::memcpy(address + at, &word, sizeof word);
        }
    }
}

namespace {

constexpr std::size_t kRefill = 64;

double cpu_seconds() {
    rusage usage{};
    (void)::getrusage(RUSAGE_SELF, &usage);  // fails on a bad address only
    const auto seconds = [](const timeval& time) {
        return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Counts ends, and keeps the first error.
class Ends {
   public:
    void operator()(const CopyOutcome& outcome) {
        const std::lock_guard lock(mutex_);
        if (!outcome.status && !error_) error_ = outcome.status.error();
        if (++count_ == awaited_) changed_.notify_one();
    }
    std::size_t count() {
        const std::lock_guard lock(mutex_);
        return count_;
    }
    void wait_for(std::size_t count) {
        std::unique_lock lock(mutex_);
        awaited_ = count;
        changed_.wait(lock, [&] { return count_ >= count; });
        if (error_) throw std::runtime_error(error_->message());
    }

   private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::size_t count_ = 0;
    std::size_t awaited_ = 0;
    std::optional<Error> error_;
};

}  // namespace

CopyTime run_copies(CopyEngine& engine, const std::vector<Flow>& flows) {
    Ends ends;
    std::size_t submitted = 0;
    const double cpu_before = cpu_seconds();
    const double elapsed = seconds([&] {
        // By turns, so that every direction has work from the start.
        std::size_t most = 0;
        for (const Flow& flow : flows) most = std::max(most, flow.from->all().size());
        for (std::size_t i = 0; i < most; ++i) {
            for (const Flow& flow : flows) {
                if (i >= flow.from->all().size()) continue;
                while (true) {
                    const std::size_t ended = ends.count();
                    const auto ticket = engine.submit({.source_tier = &flow.from->tier(),
                                                       .source = flow.from->all()[i],
                                                       .target_tier = &flow.to->tier(),
                                                       .target = flow.to->all()[i],
                                                       .done = std::ref(ends)});
                    if (ticket) break;
                    if (ticket.error().code() != Errc::busy) expect(Result<void>(ticket.error()));
                    // Not for each one, which would cost more than the copy of a small extent.
                    ends.wait_for(std::min(submitted, ended + kRefill));
                }
                ++submitted;
            }
        }
        ends.wait_for(submitted);
    });
    return {elapsed, cpu_seconds() - cpu_before};
}

}  // namespace frostline::bench
