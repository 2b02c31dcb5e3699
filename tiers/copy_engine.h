// Copies extents between tiers in the background. One table says by which path every pair of kinds
// is copied (copy_paths.h); every direction has a queue and a worker of its own, so that a slow
// medium never holds up another. A copy runs in chunks, so that it can be cancelled midway.
#pragma once

#include "tiers/copy_paths.h"
#include "tiers/tier.h"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

namespace frostline {

/// How a copy ended.
struct CopyOutcome {
    Result<void> status = ok();
    std::uint64_t checksum = 0;  ///< XXH3-64 of the bytes, if it was asked for
};

/// What to copy: the whole of `source` to the start of `target`; equal lengths. Both tiers outlive
/// the engine, and whoever submits owns both extents until `done` has been called.
struct CopyRequest {
    Tier* source_tier = nullptr;
    Extent source;
    Tier* target_tier = nullptr;
    Extent target;
    bool checksum = false;
    /// Called exactly once, on the worker's thread, after the target was fenced (or with the
    /// error). It may submit further copies.
    std::function<void(const CopyOutcome&)> done;
};

/// A handle on a copy in progress; cheap to copy. Thread-safe.
class CopyTicket {
   public:
    CopyTicket() = default;
    /// Asks the copy to stop at its next chunk; `done` then gets Errc::cancelled, unless the copy
    /// was faster.
    void cancel() noexcept {
        if (cancelled_) cancelled_->store(true, std::memory_order_relaxed);
    }

   private:
    friend class CopyEngine;
    explicit CopyTicket(std::shared_ptr<std::atomic<bool>> cancelled)
        : cancelled_(std::move(cancelled)) {}
    std::shared_ptr<std::atomic<bool>> cancelled_;
};

/// Thread-safe.
class CopyEngine {
   public:
    struct Options {
        std::uint64_t chunk_bytes = std::uint64_t{4} << 20;
        /// False: nothing runs by itself and run_step() decides what comes next, so that a test
        /// can choose every interleaving.
        bool workers = true;
    };

    static Result<std::unique_ptr<CopyEngine>> create(const Options& options) noexcept;
    /// Cancels what is queued, waits for the chunks in progress, and completes every copy.
    ~CopyEngine();

    /// Queues a copy. Errors: unsupported (no path between these kinds), closed (shutting down),
    /// out_of_memory (no thread or no memory for the request); then `done` is not called.
    Result<CopyTicket> submit(CopyRequest request) noexcept;

    /// Whether the calling thread is a worker of some engine. An engine cannot be destroyed there:
    /// it would wait for itself.
    static bool on_worker() noexcept;

    /// How many directions have work queued.
    std::size_t pending() const;
    /// Without workers only: one chunk of the `pick`-th direction that has work; false if none has.
    bool run_step(std::size_t pick);

   private:
    struct Direction;
    struct Copy;

    explicit CopyEngine(const Options& options);
    Direction& direction(TierKind source, TierKind target);
    void work(Direction& direction);
    bool step(Copy& copy);

    Options options_;
    std::atomic<bool> stopping_{false};
    std::unique_ptr<Direction[]> directions_;  // kTierKinds * kTierKinds
};

}  // namespace frostline
