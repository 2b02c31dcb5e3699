// What one worker does for the copies that the CPU itself makes: chunk by chunk, and one fence for
// a batch of small ones. Rule: the thread that wrote fences, because that is all that a fence of
// persistent memory covers, so nothing that it wrote leaves its hands before.
#pragma once

#include "tiers/copy_queue.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace frostline {

/// For one thread at a time; so is each copy that it is given.
class CpuCopies {
   public:
    /// The most that waits for a fence: enough for its cost to vanish, little enough to be short.
    static constexpr std::size_t kBatchCopies = 64;
    static constexpr std::uint64_t kBatchBytes = std::uint64_t{4} << 20;

    /// `stopping`: whether copies are to end as cancelled. May throw std::bad_alloc.
    CpuCopies(CopyQueue& queue, std::uint64_t chunk_bytes, const std::atomic<bool>& stopping);

    /// Carries out what is queued, until the queue is closed and empty.
    void run();

    /// One chunk of the most urgent copy; false if there is none.
    bool step();

    /// Whether anything is under way between two steps.
    static constexpr bool busy() noexcept { return false; }

   private:
    void chunk(Copy& copy) noexcept;
    void finish(CopyRef copy);
    void fence_batch();

    CopyQueue& queue_;
    std::uint64_t chunk_bytes_;
    const std::atomic<bool>& stopping_;
    std::unique_ptr<std::byte[]> staging_;
    std::vector<CopyRef> batch_;  // complete, but for the fence
    std::uint64_t batch_bytes_ = 0;
};

}  // namespace frostline
