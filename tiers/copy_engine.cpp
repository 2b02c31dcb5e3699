// Directions and their workers. A direction's queue is touched under its own lock alone, and no
// lock is held while bytes move or `done` runs.
#include "tiers/copy_engine.h"

#include "tiers/copy_queue.h"
#include "tiers/cpu_copies.h"
#include "tiers/queued_copies.h"
#include "tiers/relayed_copies.h"

#include <algorithm>
#include <memory>
#include <new>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <variant>

namespace frostline {
namespace {

thread_local bool is_worker = false;

// What a worker does: alike to look at, and different for each way of copying.
using Work = std::variant<CpuCopies, QueuedCopies, RelayedCopies>;

}  // namespace

// From one tier to another.
struct CopyEngine::Direction {
    Direction(const CopyRequest& request, CopyMethod by, std::size_t queue_limit)
        : source(request.source_tier),
          target(request.target_tier),
          method(by),
          queue(queue_limit) {}

    Tier& queue_tier() const { return *(uses_target_queue(method) ? target : source); }
    bool busy() const {
        return !queue.empty() ||
               (work && std::visit([](const auto& copies) { return copies.busy(); }, *work));
    }
    bool step() {
        return std::visit([](auto& copies) { return copies.step(); }, *work);
    }

    Work make_work(std::uint64_t chunk_bytes, const std::atomic<bool>& stopping) {
        if (method == CopyMethod::relayed) {
            return Work(std::in_place_type<RelayedCopies>, queue, *source, *target, stopping);
        }
        if (uses_queue(method)) {
            return Work(std::in_place_type<QueuedCopies>, queue, queue_tier(), stopping);
        }
        return Work(std::in_place_type<CpuCopies>, queue, chunk_bytes, stopping);
    }

    // The node of the memory that the CPU touches; the medium's own if that is not known.
    int numa_node() const {
        const int memory =
            uses_target_queue(method) ? source->info().numa_node : target->info().numa_node;
        const int other =
            uses_target_queue(method) ? target->info().numa_node : source->info().numa_node;
        return memory >= 0 ? memory : other;
    }

    Tier* source;
    Tier* target;
    CopyMethod method;
    CopyQueue queue;
    std::vector<std::thread> workers;
    std::optional<Work> work;  // without workers: what a worker would have
};

Result<std::unique_ptr<CopyEngine>> CopyEngine::create(const Options& options) noexcept {
    if (options.chunk_bytes == 0 || options.chunk_bytes % kPageBytes != 0) {
        return Error(Errc::invalid_argument, 0, "copy engine: chunks must be of whole pages");
    }
    if (options.queue_limit == 0) {
        return Error(Errc::invalid_argument, 0, "copy engine: its queues must hold a copy");
    }
    try {
        return std::unique_ptr<CopyEngine>(new CopyEngine(options));
    } catch (const std::bad_alloc&) {
        return Error(Errc::out_of_memory, 0, "copy engine: no memory for its queues");
    }
}

CopyEngine::CopyEngine(Options options) : options_(std::move(options)) {}

CopyEngine::~CopyEngine() {
    {
        const std::lock_guard lock(mutex_);  // no submit() adds a copy after this
        stopping_.store(true);
    }
    for (const auto& each : directions_) each->queue.close();
    for (const auto& each : directions_) {
        for (std::thread& worker : each->workers) worker.join();
    }
    // Without workers: what is left completes as cancelled.
    while (!options_.workers && run_step(0)) {
    }
}

Result<CopyTicket> CopyEngine::submit(CopyRequest request) noexcept {
    const TierKind from = request.source_tier->info().kind;
    const TierKind to = request.target_tier->info().kind;
    const CopyMethod method = copy_method(from, to);
    if (request.source.length_bytes != request.target.length_bytes) {
        return Error(Errc::invalid_argument, 0, "copy of {} bytes to an extent of {}",
                     request.source.length_bytes, request.target.length_bytes);
    }
    try {
        const CopyRef copy(new Copy(std::move(request)));
        copy->method = method;
        if (copy->request.checksum) copy->checksum.emplace(copy->length_bytes());
        const std::lock_guard lock(mutex_);
        if (stopping_.load()) return Error(Errc::closed, 0, "the copy engine is shutting down");
        Direction& way = direction(copy->request, method);
        copy->queue = &way.queue;
        if (!way.queue.add(copy)) {
            return Error(Errc::busy, 0, "{} copies from {} to {} wait already",
                         options_.queue_limit, name(from), name(to));
        }
        return CopyTicket(copy);
    } catch (const std::bad_alloc&) {
        return Error(Errc::out_of_memory, 0, "copy engine: no memory to queue a copy");
    } catch (const std::system_error& error) {
        return Error(Errc::out_of_memory, error.code().value(),
                     "copy engine: cannot start a worker thread");
    }
}

void CopyEngine::raise(const CopyTicket& ticket, CopyPriority priority) noexcept {
    if (ticket.copy_) ticket.copy_->queue->raise(*ticket.copy_, priority);
}

// Made with the first copy.
CopyEngine::Direction& CopyEngine::direction(const CopyRequest& request, CopyMethod method) {
    const auto found = std::find_if(directions_.begin(), directions_.end(), [&](const auto& each) {
        return each->source == request.source_tier && each->target == request.target_tier;
    });
    if (found != directions_.end()) return **found;
    auto made = std::make_unique<Direction>(request, method, options_.queue_limit);
    directions_.reserve(directions_.size() + 1);
    start_workers(*made);
    directions_.push_back(std::move(made));
    return *directions_.back();
}

// A queue of transfers needs one worker to keep it filled. Memory may be faster with several, as
// far as there are CPUs.
void CopyEngine::start_workers(Direction& way) {
    if (!options_.workers) {
        way.work.emplace(way.make_work(options_.chunk_bytes, stopping_));
        return;
    }
    std::size_t count = 1;
    if (!uses_queue(way.method)) {
        count =
            std::min(way.target->info().speed.best_writers, std::thread::hardware_concurrency());
        count = std::max<std::size_t>(count, 1);
    }
    way.workers.reserve(count);
    const auto begin = [this, node = way.numa_node()] {
        is_worker = true;
        if (node >= 0 && options_.bind_worker) options_.bind_worker(node);
    };
    while (way.workers.size() < count) {
        try {
            way.workers.emplace_back(
                [begin, work = way.make_work(options_.chunk_bytes, stopping_)]() mutable {
                    begin();
                    std::visit([](auto& copies) { copies.run(); }, work);
                });
        } catch (...) {
            if (way.workers.empty()) throw;
            return;  // fewer will do
        }
    }
}

bool CopyEngine::on_worker() noexcept {
    return is_worker;
}

std::vector<CopyEngine::Direction*> CopyEngine::busy_directions() const {
    const std::lock_guard lock(mutex_);
    std::vector<Direction*> busy;
    for (const auto& each : directions_) {
        if (each->busy()) busy.push_back(each.get());
    }
    return busy;
}

std::size_t CopyEngine::pending() const {
    return busy_directions().size();
}

bool CopyEngine::run_step(std::size_t pick) {
    const std::vector<Direction*> busy = busy_directions();
    if (pick >= busy.size()) return false;
    return busy[pick]->step();
}

}  // namespace frostline
