// Holds tensors within the budgets of the tiers: stores them, asks the policy what to move, has the
// mover do it, and brings tensors back when they are used.
//
// Rule of concurrency. One lock guards the table, the policy's view and all counters; it is never
// held while bytes are copied, device memory is made, or a buffer's owner is called back. Unpinning
// goes through the residency word alone. Waiting is for the end of a move, a release or a store
// (`changed_`), and nobody waits when none is in progress: then room cannot appear by itself, and
// the caller gets an error.
#pragma once

#include "allocator/tensor_table.h"
#include "migration/mover.h"
#include "migration/policy.h"
#include "migration/prefetch_window.h"
#include "migration/trace_recorder.h"
#include "migration/usage_timeline.h"
#include "tiers/copy_engine.h"
#include "tiers/dram_tier.h"

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace frostline {

/// Counters since the engine was created. A hit is a use that found its tensor in
/// the fastest tier; a stall is
/// a use, or a store, that had to wait for a move.
struct EngineStats {
    std::uint64_t stored = 0, stored_bytes = 0;
    std::uint64_t dropped = 0;
    std::uint64_t hits = 0;
    std::uint64_t use_stalls = 0, use_stall_ns = 0;
    std::uint64_t store_stalls = 0, store_stall_ns = 0;
    std::uint64_t direct_reads = 0;  ///< read from a lower tier without coming up
    std::uint64_t moves = 0;         ///< that copied bytes
    std::uint64_t free_moves = 0;    ///< that found a good copy in place
    std::uint64_t failed_moves = 0;
    std::uint64_t prefetch_bytes = 0;  ///< how far ahead it fetches now
    std::array<std::uint64_t, kMaxTiers> moved_in_bytes{};
    std::array<std::uint64_t, kMaxTiers> moved_out_bytes{};
};

/// A tensor's bytes in the fastest tier, held there until unpin(). Not more than a reference:
/// copying it does not pin again. The host can touch them only where that tier says so.
struct PinnedBytes {
    TensorRecord* tensor = nullptr;
    std::span<std::byte> bytes;
    Access access = Access::read;
};

/// How a pin ends.
enum class PinEnd : std::uint8_t {
    by_unpin,  ///< its owner calls unpin()
    later,     ///< with work that its owner has under way: unpin_now() when that has ended
};

/// A tensor whose bytes are for its owner to write.
struct NewTensor {
    TensorId id;
    PinnedBytes pinned;
};

/// Gives the bytes from `offset` on, exactly `size_bytes` of them; they stay good until the next
/// call.
using ByteSource =
    std::function<Result<std::span<const std::byte>>(std::uint64_t offset, std::size_t size_bytes)>;

/// Takes a tensor's bytes piece by piece: they are read to what room() gives for `size_bytes` bytes
/// from `offset` on, and then full() is called with that.
struct ByteSink {
    std::function<std::span<std::byte>(std::uint64_t offset, std::size_t size_bytes)> room;
    std::function<Result<void>(std::uint64_t offset, std::span<std::byte> bytes)> full;
};

/// Thread-safe, but for construction and destruction.
class MigrationEngine {
   public:
    struct Options {
        std::span<Tier* const> tiers;  ///< by TierId, the fastest first; all outlive the engine
        DramTier* dram = nullptr;      ///< tier 0, if that can take buffers over
        CopyEngine* copies = nullptr;
        const Policy* policy = nullptr;
        bool verify =
            false;  ///< checksum what leaves the fastest tier and compare it when it returns
        std::function<std::uint64_t()> now_ns;  ///< monotonic clock
    };

    explicit MigrationEngine(Options options);
    /// Ends all moves and frees every tensor. No pin may be left.
    ~MigrationEngine();

    /// Stores a copy of the bytes. Waits for room in the fastest tier if moves are making some;
    /// what that cannot hold goes straight to a lower one. Errors: invalid_argument (empty),
    /// no_space (nowhere fits it), the tiers' own.
    Result<TensorId> put(std::span<const std::byte> bytes);

    /// A new tensor in the fastest tier, pinned for writing; its content is undefined. Waits as
    /// put(). Errors: invalid_argument (empty), no_space (not there; put_below() may work), closed.
    Result<NewTensor> allocate(std::uint64_t size_bytes, PinEnd end = PinEnd::by_unpin);

    /// Stores bytes that the source gives piece by piece in the first lower tier that takes them.
    /// Each that is tried asks from the start. Errors: as put(), and the source's.
    Result<TensorId> put_below(std::uint64_t size_bytes, const ByteSource& source);

    /// Stores a buffer without copying it (unless the fastest tier cannot take buffers over): it is
    /// the engine's until `release` is called, which may be during this very call. With `held` it
    /// stays where it is until settle(), because its producer still uses it. Errors as for put();
    /// then `release` is not called and the buffer stays the caller's.
    Result<TensorId> adopt(std::span<std::byte> buffer, BufferRelease release, bool held);

    /// The producer of a held tensor has no more use for it. No effect on one that is not held.
    /// Errors: not_found.
    Result<void> settle(TensorId tensor);

    /// Brings a tensor to the fastest tier and holds it there. Waits if it has to move. Pair with
    /// unpin(). Errors: not_found, no_space (what is pinned leaves no room; read() still works),
    /// corrupt, the tiers' own.
    Result<PinnedBytes> pin(TensorId tensor, Access access, PinEnd end = PinEnd::by_unpin);
    void unpin(const PinnedBytes& pinned) noexcept;

    /// Makes a pin one that ends later: whoever needs room waits for it from now on.
    void unpin_later() noexcept;
    /// Ends such a pin. With `failed` the work did not succeed: what it was to write is lost, and
    /// whoever asks for the tensor gets this error.
    void unpin_now(const PinnedBytes& pinned, const Error* failed = nullptr) noexcept;
    /// Makes a pin one that stays until unpin_kept(), which is no concern of its owner's any more.
    void keep_pin() noexcept;
    void unpin_kept(const PinnedBytes& pinned) noexcept;

    /// Starts bringing a tensor to the fastest tier, without waiting. Errors: not_found, no_space
    /// (now).
    Result<void> prefetch(TensorId tensor);

    /// Copies the bytes out from wherever they are; `out` has exactly their size.
    Result<void> read(TensorId tensor, std::span<std::byte> out);
    /// As above, for bytes that go on from `sink`; an error of the sink's ends it.
    Result<void> read(TensorId tensor, std::uint64_t size_bytes, const ByteSink& sink);

    Result<std::uint64_t> size_bytes(TensorId tensor) const;
    /// Whether room of that size is what the tensor's bytes need. Errors: not_found,
    /// invalid_argument (it is not).
    Result<void> check_size(TensorId tensor, std::uint64_t size_bytes) const;

    /// Forgets a tensor; its room is free as soon as nobody uses it. Errors: not_found.
    Result<void> drop(TensorId tensor);

    /// Ends a training step, for the trace.
    void end_step();

    /// Cancels moves, waits for them to end, and refuses new data from then on. What is stored can
    /// still be read.
    void stop();

    /// The number of pins that somebody has still to end: neither held ones are counted, nor those
    /// which end by themselves.
    std::size_t pins() const;

    EngineStats stats() const;
    std::vector<UsageTimeline::Sample> timeline() const;
    std::string trace() const;

   private:
    using Lock = std::unique_lock<std::mutex>;
    static constexpr TierId kFastest{0};

    static Error no_such_tensor(TensorId id);
    static Result<void> check_size(const TensorRecord& tensor, std::uint64_t size_bytes);
    template <class Attempt>
    Result<Extent> find_room(std::uint64_t size_bytes, Lock& lock, Attempt attempt);
    Result<Extent> reserve_fastest(std::uint64_t size_bytes, Lock& lock);
    Tier& fastest() const noexcept { return *options_.tiers[0]; }
    Result<TensorId> write_through(std::uint64_t size_bytes, const ByteSource& source, Error last);
    /// Says how full every tier is. `where` ends "no room for so many bytes".
    Error no_room(std::uint64_t size_bytes, std::string_view where) const noexcept;
    Error no_room_in_fastest(std::uint64_t size_bytes) const noexcept;
    /// Whether something is under way that may make room.
    bool busy() const noexcept { return mover_.busy() + stores_in_progress_ + later_unpins_ > 0; }
    Result<Extent> reserve_below(Tier& tier, std::uint64_t size_bytes);
    Result<Extent> write_to(Tier& tier, std::uint64_t size_bytes, const ByteSource& source,
                            std::optional<std::uint64_t>& checksum);
    Result<TensorId> add(std::uint64_t size_bytes, const TensorCopy& copy, bool held, Lock& lock);
    Result<void> read_pinned(const TensorRecord& tensor, const TensorCopy& copy,
                             const ByteSink& sink);
    Result<void> bring_up(TensorRecord& tensor, Lock& lock);
    PinnedBytes pin_resident(TensorRecord& tensor, Access access);
    void count_use(const TensorRecord& tensor, std::uint64_t stall_ns);

    void decide(const PolicyEvent& event, Lock& lock);
    void carry_out(const Decision& decision, Lock& lock);
    void on_move(const MoveReport& report);
    void sample();
    void quiesce(Lock& lock);

    Options options_;
    mutable std::mutex mutex_;  // guards everything below
    std::condition_variable changed_;
    TensorTable table_;
    Mover mover_;
    PrefetchWindow window_;
    TraceRecorder recorder_;
    UsageTimeline timeline_;
    EngineStats stats_;
    /// Why the last attempt to bring a tensor to DRAM failed, until somebody asks for it again.
    std::unordered_map<std::uint64_t, Error> failures_;
    /// Tensors whose bytes were never written, because the work that was to do it failed.
    std::unordered_map<std::uint64_t, Error> lost_;
    std::uint64_t evictions_ended_ = 0;
    std::uint64_t room_failures_ = 0;     ///< evictions, and attempts to put memory behind room
    std::optional<Error> room_error_;     ///< of the last of these
    std::size_t later_unpins_ = 0;        ///< pins that end by themselves
    std::size_t kept_pins_ = 0;           ///< pins that do not end while the engine lives
    std::size_t stores_in_progress_ = 0;  ///< room reserved, bytes being copied, no record yet
    bool closed_ = false;
};

}  // namespace frostline
