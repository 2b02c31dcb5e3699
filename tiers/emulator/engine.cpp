// Throttling keeps a time of its own: an operation begins when both its engine and its stream are
// free by that time, and ends after its duration. So what a thread wakes up too late is not added
// up, and a chain of copies runs at the rate that was set.
#include "tiers/emulator/engine.h"

#include <sys/prctl.h>
#include <time.h>

#include <algorithm>

#include "tiers/emulator/driver.h"

namespace frostline::emulator {
namespace {

// An engine that was held up for longer than this does not hurry to make up for all of it.
constexpr std::uint64_t kMostBehindNs = 20'000'000;
constexpr std::size_t kTimelineLength = 100'000;
// Below this a copy is dominated by other costs, and says nothing of the host's speed.
constexpr std::uint64_t kSmallestMeasured = 64 << 10;

void sleep_until(std::uint64_t deadline_ns) {
    timespec until{};
    until.tv_sec = static_cast<time_t>(deadline_ns / 1'000'000'000);
    until.tv_nsec = static_cast<long>(deadline_ns % 1'000'000'000);
    while (now_ns() < deadline_ns) {
        // Interrupted or not: the loop asks the clock.
        ::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
    }
}

std::uint64_t throttle(OperationKind kind) {
    const Settings& s = driver().settings;
    switch (kind) {
        case OperationKind::h2d:
            return s.h2d_bytes_per_s;
        case OperationKind::d2h:
            return s.d2h_bytes_per_s;
        case OperationKind::d2d:
        case OperationKind::fill:
            return s.d2d_bytes_per_s;
        default:
            return 0;
    }
}

bool is_copy(OperationKind kind) {
    return kind == OperationKind::h2d || kind == OperationKind::d2h || kind == OperationKind::d2d ||
           kind == OperationKind::h2h || kind == OperationKind::fill;
}

std::optional<int> timeline_kind(OperationKind kind) {
    switch (kind) {
        case OperationKind::kernel:
            return FROSTLINE_EMULATOR_KERNEL;
        case OperationKind::h2d:
            return FROSTLINE_EMULATOR_COPY_H2D;
        case OperationKind::d2h:
            return FROSTLINE_EMULATOR_COPY_D2H;
        case OperationKind::d2d:
            return FROSTLINE_EMULATOR_COPY_D2D;
        case OperationKind::h2h:
            return FROSTLINE_EMULATOR_COPY_H2H;
        case OperationKind::fill:
            return FROSTLINE_EMULATOR_FILL;
        case OperationKind::host_function:
            return FROSTLINE_EMULATOR_HOST_FUNCTION;
        case OperationKind::memory:
            return FROSTLINE_EMULATOR_MEMORY;
        case OperationKind::marker:
            return std::nullopt;
    }
    return std::nullopt;
}

void record(const Operation& operation, std::uint64_t end_ns) {
    const auto kind = timeline_kind(operation.kind);
    if (!kind) return;
    auto& timeline = driver().timeline;
    if (timeline.size() == kTimelineLength) timeline.pop_front();
    timeline.push_back({*kind, operation.device, operation.stream->id, operation.start_ns, end_ns,
                        operation.bytes});
}

std::optional<Violation> check_ranges(const Operation& operation) {
    for (const TouchedRange& range : operation.touched) {
        auto violation = driver().memory.check(range, operation.device);
        if (violation) return violation;
    }
    return std::nullopt;
}

void blame(const Operation& operation, const Violation& violation) {
    report_misuse(violation.name, operation.what + ": " + violation.details);
    make_sticky(operation.stream->context.lock(), violation.result);
}

bool is_broken(const Operation& operation) {
    const auto context = operation.stream->context.lock();
    return context && context->sticky != CUDA_SUCCESS && !operation.even_if_broken;
}

}  // namespace

void Engine::add(std::shared_ptr<Operation> operation) {
    ready_.push_back(std::move(operation));
    if (!thread_.joinable()) thread_ = std::thread(&Engine::run, this);
    work_.notify_one();
}

void Engine::stop() {
    stopping_ = true;
    work_.notify_one();
}

void Engine::join() {
    if (thread_.joinable()) thread_.join();
}

void Engine::run() {
    // The default slack of 50 microseconds would be most of a small operation's duration.
    ::prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    Lock lock(driver().mutex);
    for (;;) {
        while (ready_.empty() && !stopping_) work_.wait(lock);
        if (ready_.empty()) return;
        const std::size_t index = ready_.size() == 1 ? 0 : driver().random() % ready_.size();
        std::swap(ready_[index], ready_.back());
        const std::shared_ptr<Operation> operation = std::move(ready_.back());
        ready_.pop_back();
        carry_out(lock, *operation);
        complete(operation);
    }
}

void Engine::carry_out(Lock& lock, Operation& operation) {
    operation.state = Operation::State::running;
    operation.start_ns = now_ns();
    if (operation.begin) operation.begin();
    const std::uint64_t deadline = schedule(operation);
    if (deadline > operation.start_ns) {
        const std::uint64_t lead = lead_ns(operation);
        lock.unlock();
        sleep_until(deadline - std::min(deadline, lead));
        lock.lock();
    }
    std::optional<Violation> violation;
    if (!is_broken(operation)) {
        violation = check_ranges(operation);
        if (!violation && operation.perform) {
            const double slowdown = 1 / driver().settings.kernel_speed - 1;
            lock.unlock();
            const std::uint64_t begun = now_ns();
            violation = operation.perform();
            const std::uint64_t elapsed = now_ns() - begun;
            learn_speed(operation, elapsed);
            std::uint64_t end = deadline;
            if (operation.kind == OperationKind::kernel && slowdown > 0) {
                end = begun + elapsed + static_cast<std::uint64_t>(slowdown * double(elapsed));
            }
            if (end > begun + elapsed) sleep_until(end);
            lock.lock();
        }
    }
    if (violation) blame(operation, *violation);
    record(operation, now_ns());
}

std::uint64_t Engine::duration_ns(const Operation& operation) const {
    Driver& d = driver();
    std::uint64_t result = 0;
    if (is_copy(operation.kind)) result += d.settings.latency_us * 1000;
    if (const std::uint64_t rate = throttle(operation.kind); rate != 0) {
        result += static_cast<std::uint64_t>(double(operation.bytes) * 1e9 / double(rate));
    }
    if (d.settings.jitter_us != 0) result += d.random() % (d.settings.jitter_us * 1000 + 1);
    return result;
}

std::uint64_t Engine::schedule(Operation& operation) {
    const std::uint64_t duration = duration_ns(operation);
    if (duration == 0) return 0;
    const std::uint64_t now = operation.start_ns;
    std::uint64_t begin = std::max({operation.queued_ns, free_ns_, operation.stream->free_ns});
    if (now > kMostBehindNs) begin = std::max(begin, now - kMostBehindNs);
    const std::uint64_t deadline = begin + duration;
    free_ns_ = deadline;
    if (is_copy(operation.kind)) operation.due_ns = deadline;
    return deadline;
}

std::uint64_t Engine::lead_ns(const Operation& operation) const {
    // Half as much again as it was seen to take: being early costs nothing, being late does.
    const double copying = double(operation.bytes) / host_bytes_per_ns_;
    return is_copy(operation.kind) ? static_cast<std::uint64_t>(copying * 1.5) : 0;
}

void Engine::learn_speed(const Operation& operation, std::uint64_t elapsed_ns) {
    if (!is_copy(operation.kind) || operation.bytes < kSmallestMeasured || elapsed_ns == 0) return;
    const double seen = double(operation.bytes) / double(elapsed_ns);
    // Slowness is believed at once and speed only bit by bit, as others use the processors, too.
    const double change = seen - host_bytes_per_ns_;
    host_bytes_per_ns_ += change < 0 ? change : change / 8;
}

}  // namespace frostline::emulator
