// An operation is ready when it is the front of its stream and nothing blocks it. Markers are done
// the moment they are ready; completing one operation may complete a chain of them, which is walked
// with a list and not by recursion.
#include "tiers/emulator/scheduler.h"

#include <algorithm>

#include "tiers/emulator/driver.h"

namespace frostline::emulator {
namespace {

using Operations = std::vector<std::shared_ptr<Operation>>;

bool is_front(const Operation& operation) {
    return operation.stream && !operation.stream->queue.empty() &&
           operation.stream->queue.front().get() == &operation;
}

/// Hands the operation to its engine; a marker goes to the list of what is to be completed.
void make_ready(const std::shared_ptr<Operation>& operation, Operations& done) {
    if (operation->state != Operation::State::queued || operation->blockers != 0) return;
    if (!is_front(*operation)) return;
    operation->state = Operation::State::ready;
    if (operation->engine == EngineKind::none) {
        operation->start_ns = now_ns();
        if (operation->begin) operation->begin();
        done.push_back(operation);
    } else {
        engine_for(operation->device, operation->engine).add(operation);
    }
}

/// When the operation ended in the time of throttling, which does not add up how late threads wake
/// up.
std::uint64_t due_time(const Operation& operation, const Stream& stream) {
    if (operation.due_ns != 0) return operation.due_ns;
    if (operation.engine != EngineKind::none) return operation.end_ns;
    return std::max(operation.queued_ns, stream.free_ns);
}

void complete_one(const std::shared_ptr<Operation>& operation, Operations& done) {
    Driver& d = driver();
    operation->end_ns = now_ns();
    if (operation->finish) operation->finish();
    operation->state = Operation::State::done;
    const std::shared_ptr<Stream> stream = std::move(operation->stream);
    stream->queue.pop_front();
    const std::uint64_t due = due_time(*operation, *stream);
    stream->free_ns = std::max(stream->free_ns, due);
    --d.unfinished;
    // What is done may be referred to for long, by events; it keeps nothing else alive.
    operation->touched.clear();
    operation->perform = nullptr;
    operation->code = nullptr;
    operation->begin = nullptr;
    operation->finish = nullptr;
    const Operations dependents = std::move(operation->dependents);
    for (const auto& dependent : dependents) {
        --dependent->blockers;
        dependent->queued_ns = std::max(dependent->queued_ns, due);
        make_ready(dependent, done);
    }
    if (stream->queue.empty()) {
        d.busy_streams.erase(stream.get());
    } else {
        make_ready(stream->queue.front(), done);
    }
}

void complete_all(Operations done) {
    Driver& d = driver();
    for (std::size_t i = 0; i < done.size(); ++i) {
        const std::shared_ptr<Operation> operation = done[i];
        complete_one(operation, done);
    }
    if (!d.deferred.empty()) std::erase_if(d.deferred, [](const auto& ready) { return ready(); });
    if (d.waiters != 0) d.completed.notify_all();
}

bool overlaps(const TouchedRange& range, std::uintptr_t start, std::size_t bytes) {
    return range.address < start + bytes && start < range.address + range.bytes;
}

}  // namespace

bool legacy_is_captured(const Context& context) {
    bool found = false;
    for (const auto& [handle, stream] : driver().streams.all()) {
        if (!stream->capture || !stream->blocking()) continue;
        if (stream->context.lock().get() != &context) continue;
        stream->capture->invalidated = true;
        found = true;
    }
    return found;
}

CUresult submit(const std::shared_ptr<Operation>& operation) {
    const Stream& stream = *operation->stream;
    if (stream.capture) {
        if (stream.capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        return stream.capture->add(operation);
    }
    const auto context = stream.context.lock();
    if (stream.legacy && context && !driver().captures.empty() && legacy_is_captured(*context)) {
        report_misuse("illegal-during-capture", operation->what + " in the legacy stream");
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    enqueue(operation);
    return CUDA_SUCCESS;
}

void enqueue(const std::shared_ptr<Operation>& operation) {
    Driver& d = driver();
    const std::shared_ptr<Stream> stream = operation->stream;
    operation->state = Operation::State::queued;
    operation->queued_ns = now_ns();
    if (const auto context = stream->context.lock()) {
        if (stream->legacy) {
            for (const auto& [raw, other] : d.busy_streams) {
                if (other->blocking() && other->context.lock() == context) {
                    depend(operation, other->last);
                }
            }
        } else if (stream->blocking()) {
            depend(operation, context->legacy_stream->last);
        }
    }
    stream->queue.push_back(operation);
    stream->last = operation;
    if (stream->queue.size() == 1) d.busy_streams.emplace(stream.get(), stream);
    ++d.unfinished;
    Operations done;
    make_ready(operation, done);
    if (!done.empty()) complete_all(std::move(done));
}

void depend(const std::shared_ptr<Operation>& operation, const std::shared_ptr<Operation>& on) {
    if (!on || on->state == Operation::State::done) return;
    on->dependents.push_back(operation);
    ++operation->blockers;
}

void complete(const std::shared_ptr<Operation>& operation) {
    complete_all({operation});
}

void wait_until(Lock& lock, const std::function<bool()>& done) {
    Driver& d = driver();
    ++d.waiters;
    while (!done()) d.completed.wait(lock);
    --d.waiters;
}

void wait_for(Lock& lock, const std::shared_ptr<Operation>& operation) {
    if (!operation) return;
    wait_until(lock, [&] { return operation->state == Operation::State::done; });
}

void wait_stream(Lock& lock, const std::shared_ptr<Stream>& stream) {
    // What is submitted by another thread meanwhile is not waited for.
    wait_for(lock, std::shared_ptr<Operation>(stream->last));
}

void wait_context(Lock& lock, const std::shared_ptr<Context>& context) {
    Operations last;
    for (const auto& [raw, stream] : driver().busy_streams) {
        if (stream->context.lock() == context) last.push_back(stream->last);
    }
    for (const auto& operation : last) wait_for(lock, operation);
}

void wait_legacy(Lock& lock, const std::shared_ptr<Context>& context) {
    Operations last;
    for (const auto& [raw, stream] : driver().busy_streams) {
        const bool waited_for = stream->blocking() || stream->legacy;
        if (waited_for && stream->context.lock() == context) last.push_back(stream->last);
    }
    for (const auto& operation : last) wait_for(lock, operation);
}

void abandon_work(Lock& lock) {
    Driver& d = driver();
    for (const auto& [key, engine] : d.engines) engine->drop_ready();
    Operations dropped;
    for (const auto& [raw, stream] : d.busy_streams) {
        auto& queue = stream->queue;
        const bool running = queue.front()->state == Operation::State::running;
        for (std::size_t i = running ? 1 : 0; i < queue.size(); ++i) {
            queue[i]->state = Operation::State::done;
            queue[i]->dependents.clear();
            dropped.push_back(queue[i]);
        }
        if (running) queue.front()->dependents.clear();
        queue.resize(running ? 1 : 0);
    }
    d.unfinished -= dropped.size();
    for (const auto& operation : dropped) operation->stream.reset();
    std::erase_if(d.busy_streams, [](const auto& entry) { return entry.second->queue.empty(); });
    wait_until(lock, [&] { return d.unfinished == 0; });
}

std::shared_ptr<Operation> work_touching(std::uintptr_t start, std::size_t bytes) {
    for (const auto& [raw, stream] : driver().busy_streams) {
        for (const auto& operation : stream->queue) {
            for (const TouchedRange& range : operation->touched) {
                if (overlaps(range, start, bytes)) return operation;
            }
        }
    }
    return nullptr;
}

void wait_untouched(Lock& lock, std::uintptr_t start, std::size_t bytes) {
    wait_until(lock, [&] { return work_touching(start, bytes) == nullptr; });
}

}  // namespace frostline::emulator
