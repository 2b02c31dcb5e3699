// Transfers of the swap tier in flight: an io_uring with its files registered, or ordinary reads
// and writes where the system refuses one. A transfer that falls short is continued, one that is
// put off is repeated a bounded number of times; every other failure ends it with an error, and a
// failed write closes the tier.
#pragma once

#include "tiers/swap_files.h"
#include "tiers/tier.h"
#include "tiers/tier_meter.h"

#include <liburing.h>
#include <boost/circular_buffer.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace frostline {

class SwapQueue final : public TransferQueue {
   public:
    struct Options {
        const SwapFiles* files = nullptr;
        TierMeter* meter = nullptr;  ///< closed when a write fails
        const SystemCalls* calls = nullptr;
        std::size_t depth = 0;
        std::uint64_t block_bytes = 0;  ///< most of one transfer; whole pages
        bool ring = true;               ///< false: ordinary reads and writes
        /// Register staging with the ring once a large transfer needs it. Registered memory is
        /// resident as a whole, other staging only as far as it is used.
        bool register_staging = true;
    };

    /// Where the system gives no ring, at the start or later (for want of descriptors, say), the
    /// queue does without. Errors: out_of_memory.
    static Result<std::unique_ptr<SwapQueue>> create(const Options& options) noexcept;
    /// Why there is no ring although one was asked for.
    const std::optional<Error>& ring_refusal() const noexcept { return ring_refusal_; }
    ~SwapQueue() override;

    std::size_t depth() const noexcept override { return options_.depth; }
    TransferPiece next_piece(const Extent& extent, std::uint64_t offset,
                             const std::byte* memory) const noexcept override;
    Result<std::span<std::byte>> staging(std::size_t slot) noexcept override;
    void push(const Transfer& transfer) noexcept override;
    TransferEnd wait() noexcept override;
    std::optional<TransferEnd> poll() noexcept override;

   private:
    // A transfer in flight.
    struct Slot {
        Transfer transfer;
        SwapFiles::Place place;
        std::uint64_t size_bytes = 0;  ///< that move: whole pages with O_DIRECT
        std::uint64_t done_bytes = 0;
        int retries = 0;
    };

    explicit SwapQueue(const Options& options);
    void set_up_ring();
    void register_staging() noexcept;
    bool in_staging(const std::byte* address) const noexcept;
    void start(std::size_t index) noexcept;
    void do_ordinarily(std::size_t index) noexcept;
    bool advance(std::size_t index, long result) noexcept;
    void end(std::size_t index, Result<void> status) noexcept;
    bool must_submit() const noexcept;
    TransferEnd take_ended() noexcept;
    void submit(unsigned wait_for) noexcept;
    void give_up_ring() noexcept;
    void reap() noexcept;

    Options options_;
    io_uring ring_{};
    std::optional<Error> ring_refusal_;
    bool has_ring_ = false;    ///< it was set up
    bool ring_works_ = false;  ///< and takes transfers
    bool files_registered_ = false;
    bool staging_tried_ = false;  ///< to be registered
    bool staging_registered_ = false;
    std::byte* staging_ = nullptr;
    int failed_submissions_ = 0;
    std::vector<Slot> slots_;
    std::vector<std::size_t> free_;
    boost::circular_buffer<std::size_t> pending_;  // in the ring, not yet taken by the kernel
    boost::circular_buffer<TransferEnd> ended_;    // and not yet told
};

}  // namespace frostline
