// The manager: tiers, policy and engine built from options. It is the face for C++ programs; the C
// interface and Python stand on it.
#pragma once

#include "allocator/residency.h"
#include "allocator/tensor_id.h"
#include "bindings/api.h"
#include "bindings/manager_options.h"
#include "tiers/buffer_release.h"
#include "tiers/result.h"
#include "tiers/tier.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace frostline {

/// One tier's figures.
struct TierStats {
    const char* name = "";   ///< device, dram, far (memory of another node), pmem, swap; static
    const char* label = "";  ///< real, or emulated (a file stands in for pmem, a program for a GPU)
    std::string location;    ///< path; empty for memory
    std::uint64_t budget_bytes = 0, used_bytes = 0, peak_bytes = 0;
    std::uint64_t moved_in_bytes = 0, moved_out_bytes = 0;
    std::uint64_t staging_bytes = 0;  ///< host memory pinned for its copies; part of no budget
    bool open = true;                 ///< false after a failure of the medium: it takes no new data
    std::string access;               ///< how it is reached, such as "io_uring, O_DIRECT"
    std::string fallback;             ///< why it is not reached in a better way; empty if it is
    TierSpeed speed;                  ///< as measured, or taken from the user's cache; 0: not known
};

/// Counters since the manager was opened.
struct ManagerStats {
    std::vector<TierStats> tiers;  ///< fastest first
    std::uint64_t stored = 0, stored_bytes = 0, dropped = 0;
    std::uint64_t hits = 0;                              ///< uses that found their tensor at hand
    std::uint64_t use_stalls = 0, use_stall_ns = 0;      ///< uses that waited for a move
    std::uint64_t store_stalls = 0, store_stall_ns = 0;  ///< stores that waited for room
    std::uint64_t moves = 0, free_moves = 0, failed_moves = 0;
    std::uint64_t direct_reads = 0;
    std::uint64_t prefetch_bytes = 0;
};

/// Bytes held by each tier (in the order of ManagerStats::tiers) at a time of CLOCK_MONOTONIC.
struct UsageSample {
    std::uint64_t time_ns = 0;
    std::vector<std::uint64_t> used_bytes;
};

/// A tensor's bytes, held in the fastest tier while this object lives: in DRAM, or in device memory
/// where there is a device tier; the host cannot touch them then. Movable. The memory stays good
/// even if the tensor is dropped meanwhile. Thread-compatible.
class FROSTLINE_API PinnedTensor {
   public:
    PinnedTensor() noexcept;
    PinnedTensor(PinnedTensor&& other) noexcept;
    PinnedTensor& operator=(PinnedTensor&& other) noexcept;
    ~PinnedTensor();

    std::span<std::byte> bytes() const noexcept;

    /// Ends the pin when the work that `stream` (a CUstream of any GPU, or 0 for the default stream
    /// of the device tier's) has been given so far is done. Never waits for it. Empty afterwards.
    /// Without a device tier the pin ends at once. A tensor that a stream uses while it captures a
    /// graph stays where it is until the manager ends, because the graph may be replayed.
    void release_after(void* stream) noexcept;

   private:
    friend class Manager;
    struct FROSTLINE_HIDDEN Pin;
    explicit PinnedTensor(std::unique_ptr<Pin> pin) noexcept;
    std::unique_ptr<Pin> pin_;
};

/// A tensor that was made for its owner to write.
struct AllocatedTensor {
    TensorId id;
    PinnedTensor pin;
};

/// Whose device memory is once Manager::put_device() has returned.
enum class DeviceSource : std::uint8_t {
    given_back,  ///< the caller may free it at once, in its stream's order
    kept,        ///< the caller keeps it until release_source(), and its stream waits for nothing
};

/// Holds tensors within the budgets of its tiers. Copies of a Manager are the same manager; the
/// last copy, or pin, closes it. Thread-safe. In a child process after fork() every call fails with
/// `unsupported`, and nothing of the parent's is touched: threads do not survive a fork.
class FROSTLINE_API Manager {
   public:
    /// Errors: invalid_argument (no DRAM budget), and those of the tiers: a directory that is
    /// missing or not writable, a pmem file that is too small or in use, a full disk.
    static Result<Manager> open(const ManagerOptions& options);

    /// Stores a copy of the bytes; they are the caller's again when it returns. Waits while moves
    /// in progress make room. Errors: invalid_argument (empty), no_space, closed, io.
    Result<TensorId> put(std::span<const std::byte> bytes);

    /// Makes a tensor, held in the fastest tier for its owner to write; its content is undefined.
    /// Waits as put(). Errors: invalid_argument (0 bytes), no_space, closed.
    Result<AllocatedTensor> allocate(std::uint64_t size_bytes);

    /// Stores `size_bytes` of device memory, of any GPU, as the work that `stream` (a CUstream of
    /// that GPU; 0 is its default stream, whichever GPU is current) has been given so far will
    /// leave them. The copy is made in the stream's order; the host waits for room only. Errors:
    /// invalid_argument (empty; not all of it is device memory; the stream is another GPU's),
    /// unsupported (the stream is capturing a graph), not_found (no CUDA driver), as put(), io (the
    /// driver's). A device tier that failed is passed over, as one that is full.
    Result<TensorId> put_device(const void* source, std::uint64_t size_bytes, void* stream,
                                DeviceSource use = DeviceSource::given_back);
    /// Makes `stream`, of any GPU, wait until a kept source was read: it may be freed in the
    /// stream's order. Errors: unsupported (the stream captures a graph), io.
    Result<void> release_source(TensorId tensor, void* stream);
    /// Whether it was read already: then it may be freed without release_source().
    Result<bool> source_read(TensorId tensor);
    /// Copies a tensor to device memory of any GPU: what `stream` was given before is done with
    /// the target by then, and what it is given afterwards finds the bytes there. `size_bytes` is
    /// the tensor's. The host waits only if the bytes are in a lower tier. The tensor stays stored.
    /// Errors: as put_device(), not_found, corrupt.
    Result<void> get_device(TensorId tensor, void* target, std::uint64_t size_bytes, void* stream);

    /// Stores a buffer without copying it (with a device tier it is copied). It is the manager's,
    /// and nobody may write to it, until `release` is called: exactly once, on any thread, with no
    /// lock held, maybe during this call. `held`: the buffer is still being used where it is, and
    /// stays there until settle(). Errors: as put(); then `release` is not called.
    Result<TensorId> adopt(std::span<std::byte> buffer, BufferRelease release, bool held = false);
    Result<void> settle(TensorId tensor);

    /// Brings the tensor to the fastest tier, waiting if need be, and holds it there. In device
    /// memory it may still be in use by the streams that held it before.
    /// Errors: not_found, no_space (pins leave no room: use get()), corrupt, io.
    Result<PinnedTensor> pin(TensorId tensor, Access access);

    /// Starts bringing the tensor to the fastest tier. Never waits. Errors: not_found, no_space.
    Result<void> prefetch(TensorId tensor);

    /// Copies the tensor's bytes out; `out` has exactly its size. The tensor stays stored.
    /// Errors: not_found, invalid_argument (size), corrupt, io.
    Result<void> get(TensorId tensor, std::span<std::byte> out);

    Result<std::uint64_t> size_bytes(TensorId tensor) const;

    /// Forgets the tensor. Errors: not_found.
    Result<void> drop(TensorId tensor);

    /// Marks the end of a training step, for the trace.
    Result<void> step();

    ManagerStats stats() const;                 ///< in a forked child: empty
    std::vector<UsageSample> timeline() const;  ///< likewise
    /// The last complete step, or else the one in progress, in the format "frostline-trace 1".
    Result<std::string> trace() const;

    /// Ends all moves and takes no new data, and removes a pmem file that open() created. What is
    /// stored can still be read; the tiers are freed with the last copy of the manager and pin.
    Result<void> close();

    /// How many pins callers have; those that end with a stream's work are not counted.
    Result<std::size_t> pins() const;

   private:
    struct FROSTLINE_HIDDEN Parts;
    friend class PinnedTensor;
    explicit Manager(std::shared_ptr<Parts> parts) noexcept;
    template <class Action>
    std::invoke_result_t<Action, Parts&> call(Action&& action) const;

    std::shared_ptr<Parts> parts_;
};

/// "major.minor.patch" of the library.
FROSTLINE_API const char* version() noexcept;

}  // namespace frostline
