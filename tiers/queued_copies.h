// What one worker does for the copies whose bytes go through a tier's queue of transfers: it keeps
// the queue filled with pieces of the most urgent copies. Pieces that cannot be moved in place go
// through the queue's staging, so that one medium works while the CPU serves the other.
#pragma once

#include "tiers/copy_queue.h"
#include "tiers/transfer_pump.h"

#include <atomic>
#include <memory>
#include <optional>

namespace frostline {

/// For one thread at a time; so is each copy that it is given.
class QueuedCopies {
   public:
    /// `tier`: the one whose queue is used. `stopping`: whether copies are to end as cancelled.
    QueuedCopies(CopyQueue& queue, Tier& tier, const std::atomic<bool>& stopping)
        : queue_(queue), tier_(tier), stopping_(stopping) {}

    /// Carries out what is queued, until the queue is closed and empty.
    void run();

    /// Starts one piece of the most urgent copy, or else waits for the end of one; false if there
    /// is nothing to do.
    bool step();

    /// Whether transfers are in flight.
    bool busy() const noexcept { return pump_ && !pump_->idle(); }

   private:
    Result<void> open();
    void start_piece(CopyRef copy);
    bool can_be_in_place(CopyMethod method, const Tier& other) const noexcept;
    void start_transfer(Copy& copy);
    void complete(const TransferPump::End& end);

    CopyQueue& queue_;
    Tier& tier_;
    const std::atomic<bool>& stopping_;
    std::unique_ptr<TransferQueue> transfers_;
    std::optional<TransferPump> pump_;
};

}  // namespace frostline
