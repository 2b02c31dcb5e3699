// Pins that end when a stream's work has: whoever queued kernels on a tensor need not wait for them
// to let go of it.
//
// Rule of concurrency. One thread looks at the oldest event of each stream in turn and waits for
// none of them, because the next event to pass may be of any stream: who waits for room must not
// depend on another stream's work. Those behind it cannot pass before it does. The lock guards the
// lists alone; the driver is not called under it.
#pragma once

#include "migration/migration_engine.h"
#include "tiers/cuda_stream.h"
#include "tiers/result.h"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <tuple>
#include <unordered_map>
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

    /// The pin, which is no longer the caller's and ends `later`, ends when `event` has passed,
    /// which the calling thread has recorded on `stream`.
    /// Work that failed by then was to write a tensor whose pin is for writing: that is lost. Never
    /// fails: where no thread or no memory can be had, it waits here.
    void unpin_after(const PinnedBytes& pinned, const EventRef& event, CUstream stream) noexcept;

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

    using Lock = std::unique_lock<std::mutex>;
    // Of a device; and of a thread, where the stream is each thread's own default stream. Two
    // threads that use one stream may add their events in another order than they recorded them:
    // then a pin ends with the next one.
    using StreamName = std::tuple<int, CUstream, std::thread::id>;

    static StreamName name_of(const CudaEvent& event, CUstream stream);
    void add(const PinnedBytes& pinned, const EventRef& event, CUstream stream);
    void run();
    void end_passed(std::list<Pending>& stream, std::list<Pending>& passed, Lock& lock);
    void forget(const Pending& pending);

    MigrationEngine& engine_;
    std::atomic<std::size_t> count_{0};  // of all that is pending; written under the lock
    std::mutex mutex_;                   // guards everything below
    std::condition_variable changed_;
    std::map<StreamName, std::list<Pending>> pending_;  // oldest first; only the thread removes
    std::unordered_multimap<std::uint64_t, const Pending*> by_tensor_;
    std::vector<PinnedBytes> kept_;
    std::thread thread_;
    bool stopping_ = false;
};

}  // namespace frostline
