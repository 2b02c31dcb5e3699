// Pins that end when a stream's work has: whoever queued kernels on a tensor need not wait for them
// to let go of it.
//
// Rule of concurrency. One thread looks at all events in turn and waits for none of them, because
// the next event to pass may be of any stream: who waits for room must not depend on another
// stream's work. The lock guards the list alone; the driver is not called under it.
#pragma once

#include "migration/migration_engine.h"
#include "tiers/cuda_stream.h"
#include "tiers/result.h"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace frostline {

/// Thread-safe. The engine outlives it.
class StreamPins {
   public:
    using EventRef = std::shared_ptr<const CudaEvent>;

    explicit StreamPins(MigrationEngine& engine) : engine_(engine) {}
    StreamPins(const StreamPins&) = delete;
    StreamPins& operator=(const StreamPins&) = delete;
    /// Waits until every pin has ended, but for those that are kept.
    ~StreamPins();

    /// The pin, which is no longer the caller's and ends `later`, ends when `event` has passed.
    /// Work that failed by then was to write a tensor whose pin is for writing: that is lost. Never
    /// fails: where no thread or no memory can be had, it waits here.
    void unpin_after(const PinnedBytes& pinned, const EventRef& event) noexcept;

    /// The pin, which is no longer the caller's, stays as long as this does.
    void keep(const PinnedBytes& pinned) noexcept;

    /// What has to pass before the tensor may be used so: the events of its pins for writing that
    /// have not ended, and for writing those for reading, too. May throw std::bad_alloc.
    std::vector<EventRef> events_before(TensorId tensor, Access access);
    /// Waits until there are none. One atomic read where no tensor has any. Errors: the driver's.
    Result<void> wait_for(TensorId tensor, Access access);

    /// Whether the calling thread is one of some StreamPins. None can be destroyed there: it would
    /// wait for itself.
    static bool on_own_thread() noexcept;

   private:
    struct Pending {
        PinnedBytes pinned;
        TensorId tensor;
        EventRef event;
    };

    void run();

    MigrationEngine& engine_;
    std::atomic<std::size_t> count_{0};  // of pending_; written under the lock
    std::mutex mutex_;                   // guards everything below
    std::condition_variable changed_;
    std::list<Pending> pending_;  // only the thread removes
    std::vector<PinnedBytes> kept_;
    std::thread thread_;
    bool stopping_ = false;
};

}  // namespace frostline
