// Queues, workers and the chunk loop. Rule: a copy belongs to the thread that took it from its
// queue until it is completed; only the cancel flag is shared. A direction's queue is touched under
// its mutex alone, and no lock is held while bytes move or `done` runs.
#include "tiers/copy_engine.h"

#include "tiers/check.h"
#include "tiers/checksum.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <new>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

namespace frostline {

struct CopyEngine::Copy {
    CopyRequest request;
    const CopyPathEntry* path;
    std::shared_ptr<std::atomic<bool>> cancelled;
    std::unique_ptr<std::byte[]> staging;
    std::optional<Checksum> checksum;
    std::uint64_t offset = 0;
};

struct CopyEngine::Direction {
    mutable std::mutex mutex;
    std::condition_variable filled;
    std::deque<std::unique_ptr<Copy>> queue;
    std::thread worker;
};

Result<std::unique_ptr<CopyEngine>> CopyEngine::create(const Options& options) noexcept {
    if (options.chunk_bytes == 0) {
        return Error(Errc::invalid_argument, 0, "copy engine: chunks must have at least one byte");
    }
    try {
        return std::unique_ptr<CopyEngine>(new CopyEngine(options));
    } catch (const std::bad_alloc&) {
        return Error(Errc::out_of_memory, 0, "copy engine: no memory for its queues");
    }
}

CopyEngine::CopyEngine(const Options& options)
    : options_(options), directions_(std::make_unique<Direction[]>(kTierKinds * kTierKinds)) {}

CopyEngine::~CopyEngine() {
    stopping_.store(true);
    for (std::size_t i = 0; i < kTierKinds * kTierKinds; ++i) {
        Direction& each = directions_[i];
        {
            const std::lock_guard lock(each.mutex);  // no worker misses the wake-up
            each.filled.notify_all();
        }
        if (each.worker.joinable()) each.worker.join();
        // What was queued without a worker; step() completes it as cancelled.
        for (auto& copy : each.queue) FROSTLINE_CHECK(!step(*copy), "a copy went on after the end");
    }
}

Result<CopyTicket> CopyEngine::submit(CopyRequest request) noexcept {
    const TierKind from = request.source_tier->info().kind;
    const TierKind to = request.target_tier->info().kind;
    const CopyPathEntry& path = copy_path(from, to);
    if (path.path == nullptr) {
        return Error(Errc::unsupported, 0, "no copy path from {} to {}", name(from), name(to));
    }
    if (request.source.length_bytes != request.target.length_bytes) {
        return Error(Errc::invalid_argument, 0, "copy of {} bytes to an extent of {}",
                     request.source.length_bytes, request.target.length_bytes);
    }
    try {
        auto copy = std::make_unique<Copy>();
        copy->path = &path;
        copy->cancelled = std::make_shared<std::atomic<bool>>(false);
        if (path.needs_staging) {
            copy->staging = std::make_unique_for_overwrite<std::byte[]>(
                std::min(options_.chunk_bytes, request.source.length_bytes));
        }
        if (request.checksum) copy->checksum.emplace();
        copy->request = std::move(request);
        CopyTicket ticket(copy->cancelled);
        Direction& queue = direction(from, to);
        const std::lock_guard lock(queue.mutex);
        if (stopping_.load()) return Error(Errc::closed, 0, "the copy engine is shutting down");
        if (options_.workers && !queue.worker.joinable()) {
            queue.worker = std::thread([this, &queue] { work(queue); });
        }
        queue.queue.push_back(std::move(copy));
        queue.filled.notify_one();
        return ticket;
    } catch (const std::bad_alloc&) {
        return Error(Errc::out_of_memory, 0, "copy engine: no memory to queue a copy");
    } catch (const std::system_error& error) {
        return Error(Errc::out_of_memory, error.code().value(),
                     "copy engine: cannot start a worker thread");
    }
}

CopyEngine::Direction& CopyEngine::direction(TierKind source, TierKind target) {
    return directions_[static_cast<std::size_t>(source) * kTierKinds +
                       static_cast<std::size_t>(target)];
}

namespace {

thread_local bool is_worker = false;

}  // namespace

bool CopyEngine::on_worker() noexcept {
    return is_worker;
}

void CopyEngine::work(Direction& direction) {
    is_worker = true;
    std::unique_lock lock(direction.mutex);
    while (true) {
        direction.filled.wait(lock, [&] { return stopping_.load() || !direction.queue.empty(); });
        if (direction.queue.empty()) return;
        std::unique_ptr<Copy> copy = std::move(direction.queue.front());
        direction.queue.pop_front();
        lock.unlock();
        while (step(*copy)) {
        }
        copy.reset();  // what `done` holds may call the engine as it goes
        lock.lock();
    }
}

// One chunk; false when the copy is complete and `done` has run.
bool CopyEngine::step(Copy& copy) {
    const CopyRequest& request = copy.request;
    const std::uint64_t length = request.source.length_bytes;
    CopyOutcome outcome;
    if (stopping_.load(std::memory_order_relaxed) ||
        copy.cancelled->load(std::memory_order_relaxed)) {
        outcome.status = Error(Errc::cancelled, 0, "copy of {} bytes cancelled", length);
    } else {
        const std::size_t bytes = std::min(options_.chunk_bytes, length - copy.offset);
        const auto moved = copy.path->path({request.source_tier,
                                            &request.source,
                                            request.target_tier,
                                            &request.target,
                                            copy.offset,
                                            bytes,
                                            {copy.staging.get(), copy.staging ? bytes : 0}});
        if (!moved) {
            outcome.status = moved.error();
        } else {
            if (copy.checksum) copy.checksum->add(*moved);
            copy.offset += bytes;
            if (copy.offset < length) return true;
            outcome.status = request.target_tier->fence(request.target);
            if (copy.checksum) outcome.checksum = copy.checksum->value();
        }
    }
    request.done(outcome);
    return false;
}

std::size_t CopyEngine::pending() const {
    std::size_t count = 0;
    for (std::size_t i = 0; i < kTierKinds * kTierKinds; ++i) {
        const std::lock_guard lock(directions_[i].mutex);
        count += directions_[i].queue.empty() ? 0 : 1;
    }
    return count;
}

bool CopyEngine::run_step(std::size_t pick) {
    for (std::size_t i = 0; i < kTierKinds * kTierKinds; ++i) {
        Direction& each = directions_[i];
        std::unique_lock lock(each.mutex);
        if (each.queue.empty() || pick-- > 0) continue;
        Copy& copy = *each.queue.front();
        lock.unlock();  // `done` may submit to this very queue
        if (step(copy)) return true;
        lock.lock();
        const std::unique_ptr<Copy> completed = std::move(each.queue.front());
        each.queue.pop_front();
        lock.unlock();  // what `done` holds may call the engine as it goes
        return true;
    }
    return false;
}

}  // namespace frostline
