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

StreamPins::StreamName StreamPins::name_of(const CudaEvent& event, CUstream stream) {
    const bool of_a_thread = stream == CU_STREAM_PER_THREAD;
    return {event.context().device(), stream,
            of_a_thread ? std::this_thread::get_id() : std::thread::id()};
}

void StreamPins::unpin_after(const PinnedBytes& pinned, const EventRef& event,
                             CUstream stream) noexcept {
    try {
        add(pinned, event, stream);
        return;
    } catch (const std::bad_alloc&) {
    } catch (const std::system_error&) {
    }
    unpin(engine_, pinned, event->synchronize());
}

// All or nothing, but for a list without pins, which the thread removes.
void StreamPins::add(const PinnedBytes& pinned, const EventRef& event, CUstream stream) {
    std::list<Pending> added{{pinned, pinned.tensor->id(), event}};
    const Lock lock(mutex_);
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
    std::list<Pending>& of_stream = pending_[name_of(*event, stream)];
    by_tensor_.emplace(added.front().tensor.packed(), &added.front());
    of_stream.splice(of_stream.end(), added);
    count_.fetch_add(1, std::memory_order_release);
    changed_.notify_all();
}

std::vector<StreamPins::EventRef> StreamPins::events_before(TensorId tensor, Access access) {
    std::vector<EventRef> events;
    if (count_.load(std::memory_order_acquire) == 0) return events;
    const Lock lock(mutex_);
    const auto [first, last] = by_tensor_.equal_range(tensor.packed());
    for (auto each = first; each != last; ++each) {
        const Pending& pending = *each->second;
        const bool matters = access == Access::write || pending.pinned.access == Access::write;
        if (matters) events.push_back(pending.event);
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
    Lock lock(mutex_);
    auto pause = kLookAgain;
    while (true) {
        changed_.wait(lock, [this] { return stopping_ || count_.load() > 0; });
        if (count_.load() == 0) return;
        std::list<Pending> passed;
        for (auto each = pending_.begin(); each != pending_.end();) {
            end_passed(each->second, passed, lock);
            each = each->second.empty() ? pending_.erase(each) : std::next(each);
        }
        const bool any = !passed.empty();
        lock.unlock();
        passed.clear();
        lock.lock();
        pause = any ? kLookAgain : std::min(2 * pause, kLookAgainAtLast);
        if (!any) changed_.wait_for(lock, pause);
    }
}

// From a stream's oldest on, behind which new ones are added meanwhile.
void StreamPins::end_passed(std::list<Pending>& stream, std::list<Pending>& passed, Lock& lock) {
    while (!stream.empty()) {
        const Pending& oldest = stream.front();
        lock.unlock();
        const auto done = ended(*oldest.event);
        if (done) unpin(engine_, oldest.pinned, *done);
        lock.lock();
        if (!done) return;
        forget(oldest);
        passed.splice(passed.end(), stream, stream.begin());
    }
}

void StreamPins::forget(const Pending& pending) {
    const auto [first, last] = by_tensor_.equal_range(pending.tensor.packed());
    by_tensor_.erase(
        std::find_if(first, last, [&](const auto& each) { return each.second == &pending; }));
    count_.fetch_sub(1, std::memory_order_release);
}

}  // namespace frostline
