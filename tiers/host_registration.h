// Host memory that is registered with the CUDA driver, piece by piece: a GPU copies from and to it
// without the driver's own staging. Registered pages stay resident until they are unregistered.
#pragma once

#include "tiers/cuda_context.h"
#include "tiers/result.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>

namespace frostline {

/// The registrations of one process with one GPU's primary context; the memory is usable by all
/// GPUs. Thread-safe.
class HostRegistration {
   public:
    struct Options {
        std::shared_ptr<const CudaContext> context;
        /// The most that is registered with one call. Drivers refuse huge ones.
        std::uint64_t chunk_bytes = std::uint64_t{64} << 20;
    };
    /// A driver that refuses this little refuses everything.
    static constexpr std::uint64_t kSmallestChunkBytes = std::uint64_t{2} << 20;

    /// Errors: invalid_argument (chunk_bytes is no multiple of 2 MiB), unsupported (the driver
    /// lacks a function, or refuses), out_of_memory.
    static Result<std::unique_ptr<HostRegistration>> create(const Options& options) noexcept;
    HostRegistration(const HostRegistration&) = delete;
    HostRegistration& operator=(const HostRegistration&) = delete;
    /// Unregisters what is left.
    ~HostRegistration();

    const CudaDriver& driver() const noexcept { return context_->driver(); }
    std::uint64_t chunk_bytes() const noexcept { return chunk_bytes_; }
    std::uint64_t registered_bytes() const noexcept;

    /// Memory that one copy of a GPU can take.
    struct Piece {
        std::uint64_t size_bytes = 0;
        bool registered = false;
    };
    /// From `address` to the end of its registered piece, or to the start of the next one.
    Piece piece_from(const std::byte* address) const noexcept;

    /// Registers whole pages, none of which is registered: all of them or none. What the driver
    /// refuses is tried in halves, down to 2 MiB; it then gets no larger pieces later on. A copy
    /// must not cross from one piece into the next. Errors: unsupported, out_of_memory.
    Result<void> add(std::span<std::byte> memory) noexcept;

    /// The same with one call of the driver, so that one copy reaches all of it; what the driver
    /// refuses is not tried in halves. Errors: as add().
    Result<void> add_whole(std::span<std::byte> memory) noexcept;

    /// Unregisters every piece that starts within `memory`; may be called again for what is left
    /// after an error, which is the driver's first.
    Result<void> remove(std::span<std::byte> memory) noexcept;

   private:
    explicit HostRegistration(const Options& options);
    Result<void> add_locked(std::span<std::byte> memory);
    Result<void> add_piece(std::span<std::byte> piece);
    Result<void> remove_locked(std::span<std::byte> memory) noexcept;

    Result<void> register_piece(std::span<std::byte> piece) const noexcept;
    Result<void> unregister_piece(std::byte* address) const noexcept;

    std::shared_ptr<const CudaContext> context_;
    std::uint64_t chunk_bytes_;

    mutable std::mutex mutex_;  // guards everything below
    std::uint64_t piece_bytes_;
    std::map<const std::byte*, std::uint64_t> pieces_;  // size by address
    std::uint64_t registered_bytes_ = 0;
};

}  // namespace frostline
