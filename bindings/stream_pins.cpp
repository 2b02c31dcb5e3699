// A waiting thread, started with the first pin.
#include "bindings/stream_pins.h"

#include "tiers/check.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <new>
#include <optional>
#include <system_error>

namespace frostline {
namespace {

// How long until the events are looked at again: after a look that found one passed, well below the
// time that a copy of some MiB takes and far above what a look costs; twice as long each time that
// none had, because then they wait for kernels.
constexpr std::chrono::microseconds kLookAgain{50};
constexpr std::chrono::microseconds kLookAgainAtLast{800};

thread_local bool is_own_thread = false;

// Nothing, or how the work before the event has ended. A query may fail without the device having
// failed, for example for want of memory, so the wait has the last word; a device that failed will
// not touch the memory any more either.
std::optional<Result<void>> ended(const CudaEvent& event) {
    const Result<bool> done = event.done();
    if (!done) return event.synchronize();
    if (!*done) return std::nullopt;
    return ok();
}

void unpin(MigrationEngine& engine, const PinnedBytes& pinned, const Result<void>& status) {
    engine.unpin_now(pinned, status ? nullptr : &status.error());
}

}  // namespace

StreamPins::~StreamPins() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
    for (const PinnedBytes& pinned : kept_) engine_.unpin_kept(pinned);
}

bool StreamPins::on_own_thread() noexcept {
    return is_own_thread;
}

void StreamPins::keep(const PinnedBytes& pinned) noexcept {
    engine_.keep_pin();
    const std::lock_guard lock(mutex_);
    try {
        kept_.push_back(pinned);
    } catch (const std::bad_alloc&) {
        FROSTLINE_CHECK(false, "no memory to keep a tensor that a graph names");
    }
}

void StreamPins::unpin_after(const PinnedBytes& pinned, const EventRef& event) noexcept {
    try {
        const std::lock_guard lock(mutex_);
        if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
        pending_.push_back({pinned, pinned.tensor->id(), event});
        count_.store(pending_.size(), std::memory_order_release);
        changed_.notify_all();
        return;
    } catch (const std::bad_alloc&) {
    } catch (const std::system_error&) {
    }
    unpin(engine_, pinned, event->synchronize());
}

std::vector<StreamPins::EventRef> StreamPins::events_before(TensorId tensor, Access access) {
    std::vector<EventRef> events;
    if (count_.load(std::memory_order_acquire) == 0) return events;
    const std::lock_guard lock(mutex_);
    for (const Pending& each : pending_) {
        const bool matters = access == Access::write || each.pinned.access == Access::write;
        if (each.tensor == tensor && matters) events.push_back(each.event);
    }
    return events;
}

Result<void> StreamPins::wait_for(TensorId tensor, Access access) {
    for (const EventRef& event : events_before(tensor, access)) {
        FROSTLINE_TRY_VOID(event->synchronize());
    }
    return ok();
}

void StreamPins::run() {
    is_own_thread = true;
    std::unique_lock lock(mutex_);
    auto pause = kLookAgain;
    while (true) {
        changed_.wait(lock, [this] { return stopping_ || !pending_.empty(); });
        if (pending_.empty()) return;
        std::list<Pending> passed;
        // New ones are added at the end meanwhile, and nobody else removes any.
        for (auto each = pending_.begin(); each != pending_.end();) {
            lock.unlock();
            const auto done = ended(*each->event);
            if (done) unpin(engine_, each->pinned, *done);
            lock.lock();
            const auto next = std::next(each);
            if (done) passed.splice(passed.end(), pending_, each);
            each = next;
            count_.store(pending_.size(), std::memory_order_release);
        }
        const bool any = !passed.empty();
        lock.unlock();
        passed.clear();
        lock.lock();
        pause = any ? kLookAgain : std::min(2 * pause, kLookAgainAtLast);
        if (!any) changed_.wait_for(lock, pause);
    }
}

}  // namespace frostline
