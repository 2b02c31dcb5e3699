// How far the streams of a GPU, and of its peers, have come: events behind what they were given.
// Events are used again, so that in a steady state a mark makes none. No call is made that would
// spoil a capture: a stream that is being captured takes no mark, nor does the legacy default
// stream while one that it waits for is being captured. A destroyed stream is asked for nothing but
// whether it is captured, which the driver answers with an error.
#pragma once

#include "allocator/heap/heap_backing.h"
#include "tiers/cuda_context.h"
#include "tiers/cuda_stream.h"
#include "tiers/result.h"

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace frostline {

/// For one thread at a time, like the backing that it belongs to, but for passed(), wait() and
/// wait_for_all(), which any thread may call beside that one.
class DeviceMarks {
    // The events of one device's context; those that nobody uses are kept.
    struct Events {
        std::shared_ptr<const CudaContext> context;
        std::vector<CudaEvent> spare{};
        std::size_t made = 0;
    };

   public:
    /// A mark; its event goes back to where it came from. Movable.
    class Event {
       public:
        Event(Event&& other) noexcept
            : home_(other.home_), event_(std::exchange(other.event_, std::nullopt)) {}
        Event& operator=(Event&& other) noexcept;
        ~Event() { give_back(); }

       private:
        friend class DeviceMarks;
        Event(Events& home, CudaEvent event) noexcept : home_(&home), event_(std::move(event)) {}
        void give_back() noexcept;

        Events* home_;  // has room for it
        std::optional<CudaEvent> event_;
    };

    /// Streams are those of the context's device and of `peers`.
    DeviceMarks(std::shared_ptr<const CudaContext> context, std::vector<int> peers);
    DeviceMarks(const DeviceMarks&) = delete;
    DeviceMarks& operator=(const DeviceMarks&) = delete;

    /// Before the first use of a stream. Errors: invalid_argument (the per-thread default stream,
    /// which has one name for many streams; a stream of another device; no stream at all),
    /// out_of_memory, the driver's.
    Result<void> admit(StreamHandle stream) noexcept;
    /// The stream is not named again before it was admitted again.
    void forget(StreamHandle stream) noexcept;

    // As HeapBacking has them, for admitted streams.
    Result<bool> may_mark(StreamHandle stream) noexcept;
    Result<Event> mark(StreamHandle stream) noexcept;
    Result<bool> passed(const Event& event) const noexcept { return event.event_->done(); }
    Result<void> wait(const Event& event) const noexcept { return event.event_->synchronize(); }
    Result<void> order(StreamHandle stream, const Event& event) noexcept;
    Result<void> wait_for_all() const noexcept;

   private:
    Result<void> admit_foreign(StreamHandle stream, int device);
    std::shared_ptr<const CudaContext> context_in_use(std::size_t number) const noexcept;
    Events& events_of(StreamHandle stream) noexcept;
    static Result<Event> take(Events& events) noexcept;

    const std::vector<int> peers_;
    Events own_;
    mutable std::mutex mutex_;  // guards the list below where another thread may read it
    std::vector<std::unique_ptr<Events>> of_peers_;
    std::vector<std::pair<StreamHandle, Events*>> foreign_;  // streams of peers: they are few
};

}  // namespace frostline
