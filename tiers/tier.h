// The interface of a medium: room is reserved and released in extents, bytes are written, fenced
// and read. A tier knows nothing of tensors. Its budget is hard: used_bytes never exceeds
// capacity_bytes.
#pragma once

#include "tiers/extent.h"
#include "tiers/result.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace frostline {

/// Whether what a tier reports is the medium itself or something that stands in for it.
enum class Label : std::uint8_t { real, emulated };

constexpr std::string_view name(Label label) noexcept {
    return label == Label::real ? "real" : "emulated";
}

/// How fast a tier is from the host's side, as measured (see Calibration); 0: not measured.
struct TierSpeed {
    std::uint64_t read_bytes_per_s = 0;
    std::uint64_t write_bytes_per_s = 0;
    std::uint64_t read_latency_ns = 0;   ///< of one page
    std::uint64_t write_latency_ns = 0;  ///< of one page
    /// More threads than this that write at once do not make it faster.
    std::uint32_t best_writers = 1;

    friend bool operator==(const TierSpeed&, const TierSpeed&) = default;
};

/// What a tier is; fixed once its creator has shared it.
struct TierInfo {
    TierId id{};
    TierKind kind{};
    std::string location;                 ///< path of the file or directory; empty for memory
    Label label = Label::real;            ///< emulated: a file stands in for pmem
    std::uint64_t capacity_bytes = 0;     ///< the budget
    std::uint64_t granularity_bytes = 1;  ///< reservations are charged in multiples of this
    bool host_addressable = false;        ///< the host can touch what address() names
    bool gpu_addressable = false;         ///< a GPU's copies reach what address() names, all of it
    bool durable = false;                 ///< fenced bytes survive a power cut
    int numa_node = -1;                   ///< the node it hangs off; -1: several, or not known
    std::string access;                   ///< how it is reached, such as "io_uring, O_DIRECT"
    std::string fallback;                 ///< why it is not reached in a better way; empty if it is
    TierSpeed speed;
};

/// What an extent of `size_bytes` takes of a budget: device memory goes in whole granules, of all
/// else what was asked for is near enough.
constexpr std::uint64_t charged_bytes(TierKind kind, std::uint64_t granularity_bytes,
                                      std::uint64_t size_bytes) noexcept {
    if (kind != TierKind::device) return size_bytes;
    return (size_bytes + granularity_bytes - 1) / granularity_bytes * granularity_bytes;
}

/// How full a tier is.
struct TierUsage {
    std::uint64_t used_bytes = 0;  ///< reserved now
    std::uint64_t peak_bytes = 0;  ///< the most that was reserved at once
    bool open = true;              ///< false once the medium failed: it takes no new data
    /// Host memory that is pinned for its copies; part of no budget.
    std::uint64_t staging_bytes = 0;
};

/// One transfer between host memory and a place within an extent.
struct Transfer {
    enum class Direction : std::uint8_t { read, write };
    Direction direction{};
    Extent extent;
    std::uint64_t offset = 0;    ///< within the extent
    std::span<std::byte> bytes;  ///< not empty; stays put until the transfer has ended
    std::uint64_t tag = 0;       ///< comes back with the end; the caller's own
};

struct TransferEnd {
    std::uint64_t tag = 0;
    Result<void> status = ok();
};

/// How much of some bytes the next transfer can carry.
struct TransferPiece {
    std::uint64_t size_bytes = 0;  ///< more than 0
    /// Whether the memory can be an end of the transfer as it lies; if not, the bytes go through
    /// staging().
    bool in_place = false;
};

/// Transfers in flight on one tier, for media that do several at a time. For one thread at a time;
/// the tier outlives it, and nothing may be in flight when it ends. Part of the tier's interface,
/// which is why it is virtual.
class TransferQueue {
   public:
    TransferQueue() = default;
    TransferQueue(const TransferQueue&) = delete;
    TransferQueue& operator=(const TransferQueue&) = delete;
    virtual ~TransferQueue() = default;

    /// The most transfers in flight at once.
    virtual std::size_t depth() const noexcept = 0;
    /// How much of the rest of an extent, from `offset`, the next transfer can carry. `memory` is
    /// where it would be in host memory; nullptr: nowhere, so that it needs staging.
    virtual TransferPiece next_piece(const Extent& extent, std::uint64_t offset,
                                     const std::byte* memory) const noexcept = 0;
    /// The `slot`-th of depth() buffers that a transfer can use, large enough for any piece.
    /// Errors: out_of_memory.
    virtual Result<std::span<std::byte>> staging(std::size_t slot) noexcept = 0;
    /// Starts a transfer of what next_piece() said; there must be fewer than depth() in flight.
    /// Whatever goes wrong is told by its end.
    virtual void push(const Transfer& transfer) noexcept = 0;
    /// Waits for the end of one of the transfers in flight, of which there must be one.
    virtual TransferEnd wait() noexcept = 0;
    /// An end that is known already; nothing if there is none. Waits for nothing, but sees to it
    /// that the medium works on what was pushed. A queue that knows of ends only by waiting for
    /// them, and whose medium needs no asking, has nothing to tell.
    virtual std::optional<TransferEnd> poll() noexcept { return std::nullopt; }
};

/// A medium. All functions may be called from any thread; two calls may touch the same extent at
/// once only if both read. Whoever reserves an extent owns it until release().
class Tier {
   public:
    Tier() = default;
    Tier(const Tier&) = delete;
    Tier& operator=(const Tier&) = delete;
    virtual ~Tier() = default;

    virtual const TierInfo& info() const noexcept = 0;
    virtual TierUsage usage() const noexcept = 0;

    /// Room for `size_bytes` > 0. Errors: no_space (budget or medium full), closed.
    virtual Result<Extent> reserve(std::uint64_t size_bytes) noexcept = 0;

    /// The same in two parts, for who must not wait under a lock: the room, and its budget, at
    /// once, and then back() for what a medium takes long to do. Errors: as reserve().
    virtual Result<Extent> reserve_room(std::uint64_t size_bytes) noexcept {
        return reserve(size_bytes);
    }
    /// Makes such room ready to hold bytes, which is to be done once, before anything else. After
    /// an error it is room still, to be released. Errors: as reserve(), the medium's own.
    virtual Result<void> back(const Extent& /*extent*/) noexcept { return ok(); }

    /// Gives an extent back, exactly as it was reserved. Anything else ends the program.
    virtual void release(const Extent& extent) noexcept = 0;

    /// Writes `bytes` at `offset` within the extent. On an error that the medium will repeat (full,
    /// input/output error) the tier closes itself to new reservations; what it holds stays
    /// readable.
    virtual Result<void> write(const Extent& extent, std::uint64_t offset,
                               std::span<const std::byte> bytes) noexcept = 0;

    /// Reads into `bytes` from `offset` within the extent.
    virtual Result<void> read(const Extent& extent, std::uint64_t offset,
                              std::span<std::byte> bytes) noexcept = 0;

    /// Returns when everything that the calling thread wrote to the extents before is in place; on
    /// a durable tier, when it would survive a power cut. Nothing may point to the bytes before
    /// that. One call for many extents costs little more than for one.
    virtual Result<void> fence(std::span<const Extent> extents) noexcept = 0;
    Result<void> fence(const Extent& extent) noexcept { return fence({&extent, 1}); }

    /// Where the extent's bytes lie in the address space that host and GPUs share, or nullptr if
    /// they lie in none. The host may touch them only if info().host_addressable.
    virtual std::byte* address(const Extent& extent) const noexcept = 0;

    /// Bytes within one extent were written at their address and not by write(): a fence() of the
    /// calling thread covers them after this.
    virtual void flush_in_place(std::span<const std::byte> /*range*/) noexcept {}

    /// A queue for the copies of one thread, or nullptr where a copy is the CPU's own work.
    virtual Result<std::unique_ptr<TransferQueue>> open_queue() noexcept = 0;

    /// Takes note of what was measured; the peak of use counts from here. Called at most once,
    /// before other threads use the tier.
    virtual void calibrated(const TierSpeed& speed) noexcept = 0;
};

}  // namespace frostline
