// Host memory for a heap: private anonymous addresses that are reserved once and cannot be touched
// where no chunk lies. What is given back takes up no memory from then on.
#pragma once

#include "allocator/heap/heap_backing.h"
#include "tiers/cuda_context.h"
#include "tiers/host_registration.h"
#include "tiers/result.h"
#include "tiers/system_calls.h"
#include "tiers/topology.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace frostline {

/// A HeapBacking. For one thread at a time. In a forked child the chunks are copies of what they
/// were.
class HostBacking {
   public:
    struct Options {
        std::uint64_t capacity_bytes = 0;  ///< 0: all memory that the process may have
        /// A multiple of 64 KiB (2 MiB with `pin`) and a power of two.
        std::uint64_t chunk_bytes = std::uint64_t{2} << 20;
        /// Where memory lies as long as there is room; kNoNode: near whoever touches it first.
        int numa_node = kNoNode;
        /// Register memory with this GPU's driver while the heap has it; null: do not. What the
        /// heap asks for at once is one registration, which one copy of a GPU reaches.
        std::shared_ptr<const CudaContext> pin{};
        const SystemCalls* calls = &SystemCalls::real();  ///< outlives the backing
        std::string root{};                               ///< as memory_limit_bytes() has it
    };
    struct Event {};  // nobody asks for one
    static constexpr bool kMakesWindows = false;
    static constexpr bool kHasStreams = false;

    /// Errors: invalid_argument (less than a chunk, no such chunk size, no such node), no_space (no
    /// addresses), permission (the system lets nobody place memory, as in some containers),
    /// unsupported (the driver registers no memory), out_of_memory.
    static Result<std::unique_ptr<HostBacking>> create(const Options& options) noexcept;
    HostBacking(const HostBacking&) = delete;
    HostBacking& operator=(const HostBacking&) = delete;
    ~HostBacking();

    HeapAddresses addresses() const noexcept { return addresses_; }
    std::uint64_t chunk_bytes() const noexcept { return chunk_bytes_; }
    std::uint64_t capacity_bytes() const noexcept { return capacity_bytes_; }
    std::uint64_t pinned_bytes() const noexcept {
        return registration_ == nullptr ? 0 : registration_->registered_bytes();
    }
    /// A copy of a GPU must not cross from one registration into the next.
    bool keeps_runs() const noexcept { return registration_ != nullptr; }
    /// Null without `pin`.
    const HostRegistration* registration() const noexcept { return registration_.get(); }

    Result<void> back(std::uint64_t address, std::uint64_t chunks) noexcept;
    Result<void> unback(std::uint64_t address, std::uint64_t chunks) noexcept;

    // Nobody calls what follows: there are no windows, and no streams.
    Result<void> map_window(std::uint64_t, std::span<const std::uint64_t>) noexcept;
    Result<void> unmap_window(std::uint64_t, std::uint64_t) noexcept;
    Result<bool> may_mark(StreamHandle) noexcept { return true; }
    Result<Event> mark(StreamHandle) noexcept { return Event{}; }
    Result<bool> passed(const Event&) const noexcept { return true; }
    Result<void> wait(const Event&) const noexcept { return ok(); }
    Result<void> order(StreamHandle, const Event&) noexcept { return ok(); }
    Result<void> wait_for_all() const noexcept { return ok(); }

   private:
    HostBacking(const Options& options, std::uint64_t capacity_bytes) noexcept;
    Result<void> reserve_addresses() noexcept;
    Result<void> place(int numa_node);
    std::span<std::byte> chunks_at(std::uint64_t address, std::uint64_t chunks) const noexcept {
        return {reinterpret_cast<std::byte*>(address), chunks * chunk_bytes_};
    }
    Result<void> give_to_system(std::span<std::byte> memory) noexcept;

    const SystemCalls* const calls_;
    const std::uint64_t capacity_bytes_;
    const std::uint64_t chunk_bytes_;
    std::span<std::byte> reserved_;  // what was mapped; the heap's addresses lie in it
    HeapAddresses addresses_;
    std::unique_ptr<HostRegistration> registration_;
};

}  // namespace frostline
