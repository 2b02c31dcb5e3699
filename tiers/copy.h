// One copy from submission to its end. It belongs to one worker at a time: the one that took it
// from its queue, until it puts it back or ends it. Only the cancel flag and, under the queue's
// lock, the priority are shared.
#pragma once

#include "tiers/checksum.h"
#include "tiers/copy_paths.h"
#include "tiers/tier.h"

#include <boost/intrusive/list_hook.hpp>
#include <boost/smart_ptr/intrusive_ptr.hpp>
#include <boost/smart_ptr/intrusive_ref_counter.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

namespace frostline {

/// Who waits for a copy. A more urgent one goes first, at the next chunk of a less urgent one.
enum class CopyPriority : std::uint8_t {
    demand,    ///< somebody waits for these very bytes
    prefetch,  ///< somebody will
    eviction,  ///< somebody needs the room
};
inline constexpr std::size_t kCopyPriorities = 3;

/// How a copy ended.
struct CopyOutcome {
    Result<void> status = ok();
    std::uint64_t checksum = 0;  ///< of the bytes (see Checksum), if it was asked for
};

/// What to copy: the whole of `source` to the start of `target`; equal lengths. Both tiers outlive
/// the engine, and whoever submits owns both extents until `done` has been called.
struct CopyRequest {
    Tier* source_tier = nullptr;
    Extent source;
    Tier* target_tier = nullptr;
    Extent target;
    bool checksum = false;
    /// Called exactly once, on the worker's thread, after the target was fenced (or with the
    /// error). It may submit further copies.
    std::function<void(const CopyOutcome&)> done;
    CopyPriority priority = CopyPriority::eviction;
    bool back_target = false;  ///< the target is room only: back() it before the first byte
};

class CopyQueue;

/// Counted references, so that a ticket can outlive the copy's end.
struct Copy : boost::intrusive_ref_counter<Copy>, boost::intrusive::list_base_hook<> {
    explicit Copy(CopyRequest what) : request(std::move(what)), priority(request.priority) {}

    std::uint64_t length_bytes() const noexcept { return request.source.length_bytes; }
    bool all_started() const noexcept { return started_bytes == length_bytes(); }

    /// Nothing more of it is started.
    void fail(const Error& error) noexcept {
        if (outcome.status) outcome.status = error;
        started_bytes = length_bytes();
    }

    /// False, and failed, if it was given up, one of its parts has failed meanwhile, or there is no
    /// memory behind the target.
    bool may_go_on(const std::atomic<bool>& stopping) noexcept;

    /// Once all of it is started: fences the target and ends the copy, unless parts are in flight.
    void end_if_complete();

    /// Calls `done`, and lets go of what it holds, which may call the engine as it goes.
    void end() {
        if (checksum && outcome.status) outcome.checksum = checksum->value();
        const auto done = std::move(request.done);
        done(outcome);
    }

    CopyRequest request;
    CopyMethod method{};
    CopyQueue* queue = nullptr;
    std::atomic<CopyPriority> priority;  ///< written under the queue's lock
    std::atomic<bool> cancelled{false};
    std::optional<Checksum> checksum;
    CopyOutcome outcome;
    std::uint64_t started_bytes = 0;  ///< chunks and transfers begun, from the start
    std::size_t in_flight = 0;        ///< transfers whose end is not known
};

using CopyRef = boost::intrusive_ptr<Copy>;

/// The end of a copy that somebody gave up.
inline Error cancelled(const Copy& copy) noexcept {
    return Error(Errc::cancelled, 0, "copy of {} bytes cancelled", copy.length_bytes());
}

inline bool Copy::may_go_on(const std::atomic<bool>& stopping) noexcept {
    if (stopping.load(std::memory_order_relaxed) || cancelled.load(std::memory_order_relaxed)) {
        fail(frostline::cancelled(*this));
        return false;
    }
    if (outcome.status && std::exchange(request.back_target, false)) {
        outcome.status = request.target_tier->back(request.target);
    }
    if (!outcome.status) fail(outcome.status.error());
    return outcome.status.has_value();
}

inline void Copy::end_if_complete() {
    if (in_flight > 0) return;
    if (outcome.status) outcome.status = request.target_tier->fence(request.target);
    end();
}

}  // namespace frostline
