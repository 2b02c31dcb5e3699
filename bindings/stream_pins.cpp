// A waiting thread, started with the first pin.
#include "bindings/stream_pins.h"

#include <chrono>
#include <iterator>
#include <new>
#include <system_error>

namespace frostline {
namespace {

// How often the events of several streams are looked at: well below the time that a copy of some
// MiB takes, and far above what a look costs.
constexpr std::chrono::microseconds kLookAgain{50};

// A device that failed will not touch the memory any more either.
bool ended(const Result<bool>& done) {
    return !done || *done;
}

}  // namespace

StreamPins::~StreamPins() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
}

void StreamPins::unpin_after(const PinnedBytes& pinned, EventRef event, CUstream stream) noexcept {
    engine_.unpin_later();
    try {
        const std::lock_guard lock(mutex_);
        if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
        pending_.push_back({pinned, pinned.tensor->id(), event, stream});
        count_.store(pending_.size(), std::memory_order_release);
        changed_.notify_all();
        return;
    } catch (const std::bad_alloc&) {
    } catch (const std::system_error&) {
    }
    (void)event->synchronize();
    engine_.unpin_now(pinned);
}

std::vector<StreamPins::EventRef> StreamPins::events_of(TensorId tensor) {
    std::vector<EventRef> events;
    if (count_.load(std::memory_order_acquire) == 0) return events;
    const std::lock_guard lock(mutex_);
    for (const Pending& each : pending_) {
        if (each.tensor == tensor) events.push_back(each.event);
    }
    return events;
}

Result<void> StreamPins::wait_for(TensorId tensor) {
    for (const EventRef& event : events_of(tensor)) FROSTLINE_TRY_VOID(event->synchronize());
    return ok();
}

bool StreamPins::of_one_stream() const {
    for (const Pending& each : pending_) {
        if (each.stream != pending_.front().stream) return false;
    }
    return true;
}

void StreamPins::run() {
    std::unique_lock lock(mutex_);
    while (true) {
        changed_.wait(lock, [this] { return stopping_ || !pending_.empty(); });
        if (pending_.empty()) return;
        if (of_one_stream()) {
            const EventRef oldest = pending_.front().event;
            lock.unlock();
            (void)oldest->synchronize();
            lock.lock();
        }
        // New ones are added at the end meanwhile, and nobody else removes any.
        bool any = false;
        for (auto each = pending_.begin(); each != pending_.end();) {
            lock.unlock();
            const bool passed = ended(each->event->done());
            if (passed) engine_.unpin_now(each->pinned);
            lock.lock();
            each = passed ? pending_.erase(each) : std::next(each);
            count_.store(pending_.size(), std::memory_order_release);
            any |= passed;
        }
        if (!any) changed_.wait_for(lock, kLookAgain);
    }
}

}  // namespace frostline
