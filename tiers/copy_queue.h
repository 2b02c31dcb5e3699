// The copies of one direction that wait for a worker: the most urgent first, and among equals the
// oldest. Bounded, so that whoever submits learns that a medium does not keep up.
#pragma once

#include "tiers/copy.h"

#include <boost/intrusive/list.hpp>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <mutex>

namespace frostline {

/// Thread-safe. Allocates nothing. Holds a reference to each copy in it.
class CopyQueue {
   public:
    /// At most `limit` copies of each priority are added.
    explicit CopyQueue(std::size_t limit) : limit_(limit) {}
    CopyQueue(const CopyQueue&) = delete;
    CopyQueue& operator=(const CopyQueue&) = delete;
    /// It must be empty.
    ~CopyQueue() = default;

    /// False if it is full.
    bool add(CopyRef copy) noexcept;

    /// The next copy; nullptr if there is none. With `wait` that means that close() was called.
    CopyRef take(bool wait);

    /// Puts a taken copy back to where it was, before all others of its priority.
    void put_back(CopyRef copy) noexcept;

    /// Makes a copy more urgent, whether it is in here or taken.
    void raise(Copy& copy, CopyPriority priority) noexcept;

    /// Whether a copy waits that is more urgent than that. One atomic read.
    bool has_more_urgent(CopyPriority than) const noexcept {
        return most_urgent_.load(std::memory_order_relaxed) < static_cast<std::size_t>(than);
    }
    bool empty() const noexcept {
        return most_urgent_.load(std::memory_order_relaxed) == kCopyPriorities;
    }

    /// Wakes whoever waits, and everybody after. What is queued can still be taken.
    void close() noexcept;

   private:
    using List = boost::intrusive::list<Copy, boost::intrusive::constant_time_size<true>>;

    List& list_of(const Copy& copy) noexcept {
        return waiting_[static_cast<std::size_t>(copy.priority.load(std::memory_order_relaxed))];
    }
    void note_most_urgent() noexcept;

    const std::size_t limit_;
    // The index of the first list that is not empty; outside of the lock no more than a hint.
    std::atomic<std::size_t> most_urgent_{kCopyPriorities};
    std::mutex mutex_;  // guards the rest
    std::condition_variable filled_;
    std::array<List, kCopyPriorities> waiting_;
    bool closed_ = false;
};

}  // namespace frostline
