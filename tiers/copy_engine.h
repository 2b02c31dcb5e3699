// Copies extents between tiers in the background. One table says by which method every pair of
// kinds is copied (copy_paths.h); every pair of tiers has a queue and workers of its own, so that a
// slow medium never holds up another. A copy runs in chunks, so that it can be cancelled midway and
// gives way to a more urgent one.
#pragma once

#include "tiers/copy.h"
#include "tiers/tier.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace frostline {

/// A handle on a copy in progress; cheap to copy. Thread-safe.
class CopyTicket {
   public:
    CopyTicket() = default;
    /// Asks the copy to stop at its next chunk; `done` then gets Errc::cancelled, unless the copy
    /// was faster.
    void cancel() noexcept {
        if (copy_) copy_->cancelled.store(true, std::memory_order_relaxed);
    }

   private:
    friend class CopyEngine;
    explicit CopyTicket(CopyRef copy) : copy_(std::move(copy)) {}
    CopyRef copy_;
};

/// Thread-safe.
class CopyEngine {
   public:
    struct Options {
        std::uint64_t chunk_bytes = std::uint64_t{4} << 20;  ///< of the CPU's copies; whole pages
        /// False: nothing runs by itself and run_step() decides what comes next, so that a test
        /// can choose every interleaving.
        bool workers = true;
        /// The most copies of each priority that wait for one pair of tiers.
        std::size_t queue_limit = 256;
        /// Called first on each worker, with the NUMA node of the memory that it will touch; not
        /// called where that is not known.
        std::function<void(int numa_node)> bind_worker;
    };

    static Result<std::unique_ptr<CopyEngine>> create(const Options& options) noexcept;
    /// Cancels what is queued, waits for what is in progress, and completes every copy.
    ~CopyEngine();

    /// Queues a copy. Errors: invalid_argument (unequal lengths), busy (too many copies
    /// wait already: try again when one has ended), closed (shutting down), out_of_memory (no
    /// thread or no memory for the request); then `done` is not called.
    Result<CopyTicket> submit(CopyRequest request) noexcept;

    /// Makes a copy more urgent; no effect on one that is, or that has ended.
    void raise(const CopyTicket& ticket, CopyPriority priority) noexcept;

    /// Whether the calling thread is a worker of some engine. An engine cannot be destroyed there:
    /// it would wait for itself.
    static bool on_worker() noexcept;

    /// How many pairs of tiers have work.
    std::size_t pending() const;
    /// Without workers only: one chunk, or the start or the end of one transfer, of the `pick`-th
    /// pair that has work; false if there is none. Pairs come in the order of their first copies.
    bool run_step(std::size_t pick);

   private:
    struct Direction;

    explicit CopyEngine(Options options);
    Direction& direction(const CopyRequest& request, CopyMethod method);
    void start_workers(Direction& direction);
    std::vector<Direction*> busy_directions() const;

    Options options_;
    std::atomic<bool> stopping_{false};
    mutable std::mutex mutex_;  // guards the list, not what it names
    std::vector<std::unique_ptr<Direction>> directions_;
};

}  // namespace frostline
