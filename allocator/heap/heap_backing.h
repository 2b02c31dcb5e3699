// What a heap needs of the memory that it manages: addresses, chunks behind them, and, where
// streams use the memory, a way to know how far they have come. Heap is written against this alone.
#pragma once

#include "tiers/result.h"

#include <concepts>
#include <cstdint>
#include <span>

namespace frostline {

/// A driver's stream as a number; 0 is a stream like any other (the legacy default one, in CUDA).
using StreamHandle = std::uintptr_t;

/// One address range, of which the heap uses three parts as it likes.
struct HeapAddresses {
    std::uint64_t address = 0;  ///< a multiple of the chunk size, as are the parts' sizes
    std::uint64_t large_bytes = 0;
    std::uint64_t small_bytes = 0;
    std::uint64_t window_bytes = 0;  ///< 0 where the backing makes no windows

    std::uint64_t small() const noexcept { return address + large_bytes; }
    std::uint64_t windows() const noexcept { return small() + small_bytes; }
    std::uint64_t size_bytes() const noexcept { return large_bytes + small_bytes + window_bytes; }
};

/// The heap calls a backing under its lock, one call at a time, but for `wait` and `wait_for_all`,
/// which go on beside other calls. Addresses and sizes are whole chunks. An error leaves everything
/// as it was, except that after a failed removal the memory is not used again, unless the error is
/// `busy`: then it is as good as before.
///
/// Without streams, memory that is freed is free for all at once, and no event is asked for.
/// `capacity_bytes` is the most that may be behind addresses together.
/// `back` puts fresh memory behind addresses that have none; its errors no_space and out_of_memory
/// mean that there is no more for now. `unback` takes it away: nothing uses it any longer.
/// `map_window` makes the chunks at `homes` appear one after the other at `address` as well.
/// `mark` returns an event behind all that is queued on a stream; `passed` asks whether it has been
/// reached, `wait` waits for it, `order` makes a stream wait for it without waiting itself.
/// `may_mark` is false while marks are illegal, as they are while the stream is being captured; its
/// error not_found, like that of `mark`, means that the stream was destroyed. `wait_for_all` waits
/// for everything that was queued on any stream, destroyed ones included.
template <class B>
concept HeapBacking = requires(B backing, const B constant, std::uint64_t address,
                               std::uint64_t chunks, std::span<const std::uint64_t> homes,
                               StreamHandle stream, typename B::Event& event) {
    { B::kMakesWindows } -> std::convertible_to<bool>;
    { B::kHasStreams } -> std::convertible_to<bool>;
    { constant.addresses() } -> std::same_as<HeapAddresses>;
    { constant.chunk_bytes() } -> std::same_as<std::uint64_t>;
    { constant.capacity_bytes() } -> std::same_as<std::uint64_t>;
    { constant.pinned_bytes() } -> std::same_as<std::uint64_t>;
    { backing.back(address, chunks) } -> std::same_as<Result<void>>;
    { backing.unback(address, chunks) } -> std::same_as<Result<void>>;
    { backing.map_window(address, homes) } -> std::same_as<Result<void>>;
    { backing.unmap_window(address, chunks) } -> std::same_as<Result<void>>;
    { backing.may_mark(stream) } -> std::same_as<Result<bool>>;
    { backing.mark(stream) } -> std::same_as<Result<typename B::Event>>;
    { backing.passed(event) } -> std::same_as<Result<bool>>;
    { backing.wait(event) } -> std::same_as<Result<void>>;
    { backing.order(stream, event) } -> std::same_as<Result<void>>;
    { backing.wait_for_all() } -> std::same_as<Result<void>>;
};

/// A backing may refuse a stream before its first use: one that cannot be told from others by its
/// handle, or that does not reach the memory. It is told when a stream will not be named again: the
/// handle may be another stream's next.
template <class B>
concept JudgesStreams = requires(B backing, StreamHandle stream) {
    { backing.admit(stream) } -> std::same_as<Result<void>>;
    { backing.forget(stream) }
    noexcept;
};

/// A backing may keep what unback() took away, for the next back(). Then release_spare() gives it
/// up to other users of the medium, and says how many bytes; spare_bytes() is how many it would be,
/// and held_bytes() all that is taken from the medium, spares included.
template <class B>
concept KeepsSpares = requires(B backing, const B constant) {
    { backing.release_spare() } -> std::same_as<std::uint64_t>;
    { constant.spare_bytes() } -> std::same_as<std::uint64_t>;
    { constant.held_bytes() } -> std::same_as<std::uint64_t>;
};

/// What one call of back() gave may have to stay together: then no block lies in two such runs, and
/// unback() gets whole ones.
template <class B>
concept KeepsRuns = requires(const B constant) {
    { constant.keeps_runs() } -> std::same_as<bool>;
};

}  // namespace frostline
