// What one worker does for copies between a device and the swap tier: both have queues of
// transfers, and neither may run dry. Pieces pass through the pinned staging of the device's queue,
// filled by one queue and emptied by the other, without the CPU touching them.
#pragma once

#include "tiers/copy_queue.h"
#include "tiers/tier.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace frostline {

/// For one thread at a time; so is each copy that it is given.
class RelayedCopies {
   public:
    /// One of the tiers is a device. `stopping`: whether copies are to end as cancelled.
    RelayedCopies(CopyQueue& queue, Tier& source, Tier& target, const std::atomic<bool>& stopping);

    /// Carries out what is queued, until the queue is closed and empty.
    void run();

    /// Starts one piece of the most urgent copy, or else waits for the end of one transfer; false
    /// if there is nothing to do.
    bool step();

    /// Whether pieces are on their way.
    bool busy() const noexcept { return busy_buffers_ > 0; }

   private:
    // A piece on its way. Going down the device's transfer comes first, going up the file's.
    struct Buffer {
        enum class Stage : std::uint8_t { free, device, file };
        Stage stage = Stage::free;
        std::span<std::byte> memory;  ///< all of it
        std::span<std::byte> bytes;   ///< the piece's
        Copy* copy = nullptr;         ///< counted
        std::uint64_t offset = 0;     ///< of the piece in its extents
        std::uint64_t pushed_bytes = 0;
        std::size_t in_flight = 0;  ///< of the file's transfers
        Result<void> status = ok();
    };

    bool down() const noexcept { return &device_ == &source_; }
    const Extent& device_extent(const Copy& copy) const noexcept;
    const Extent& file_extent(const Copy& copy) const noexcept;
    Result<void> open();
    void start_piece(CopyRef copy);
    Result<void> start_buffer(Copy& copy);
    void begin_device(Buffer& buffer);
    void begin_file(Buffer& buffer);
    void push_file_transfers();
    void push_file_transfers_of(Buffer& buffer);
    void progress();
    void end_device(const TransferEnd& end);
    void end_file(const TransferEnd& end);
    void end_file_stage_if_complete(Buffer& buffer);
    void finish(Buffer& buffer);

    CopyQueue& queue_;
    Tier& source_;
    Tier& device_;
    Tier& file_;
    const std::atomic<bool>& stopping_;
    std::unique_ptr<TransferQueue> device_queue_;
    std::unique_ptr<TransferQueue> file_queue_;
    std::vector<Buffer> buffers_;
    std::size_t busy_buffers_ = 0;
    std::size_t device_in_flight_ = 0;
    std::size_t file_in_flight_ = 0;
};

}  // namespace frostline
