// GPU memory for a heap: addresses that are reserved once, and physical handles of one size, the
// chunks, mapped where the heap wants them, a second time where it makes a window. Nothing is
// unmapped under work: the heap asks for it when the streams are done. All is done in the owning
// context, whatever the caller's is.
#pragma once

#include "allocator/heap/device_marks.h"
#include "allocator/heap/heap_backing.h"
#include "tiers/cuda_context.h"
#include "tiers/device_chunks.h"
#include "tiers/result.h"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace frostline {

/// A HeapBacking. For one thread at a time.
class DeviceBacking {
   public:
    struct Options {
        std::shared_ptr<const CudaContext> context;
        std::uint64_t capacity_bytes = 0;  ///< 0: what the device has free
        /// The driver's granularity (2 MiB on what there is) times a power of two.
        std::uint64_t chunk_bytes = std::uint64_t{2} << 20;
        std::vector<int> peers{};  ///< GPUs, as CUDA counts them, that use the memory as well
    };
    using Event = DeviceMarks::Event;
    static constexpr bool kMakesWindows = true;
    static constexpr bool kHasStreams = true;

    /// Errors: invalid_argument (no context, more than the device has, less than a chunk, no such
    /// chunk size, a peer that cannot reach the device), unsupported (no virtual memory
    /// management), no_space (no addresses), out_of_memory, the driver's.
    static Result<std::unique_ptr<DeviceBacking>> create(const Options& options) noexcept;
    DeviceBacking(const DeviceBacking&) = delete;
    DeviceBacking& operator=(const DeviceBacking&) = delete;
    /// Nothing may be mapped any more.
    ~DeviceBacking();

    HeapAddresses addresses() const noexcept { return addresses_; }
    std::uint64_t chunk_bytes() const noexcept { return chunks_->chunk_bytes(); }
    std::uint64_t capacity_bytes() const noexcept { return capacity_bytes_; }
    /// GPU memory is never paged, and so not counted as pinned.
    std::uint64_t pinned_bytes() const noexcept { return 0; }

    Result<void> back(std::uint64_t address, std::uint64_t chunks) noexcept;
    Result<void> unback(std::uint64_t address, std::uint64_t chunks) noexcept;
    Result<void> map_window(std::uint64_t address, std::span<const std::uint64_t> homes) noexcept;
    Result<void> unmap_window(std::uint64_t address, std::uint64_t chunks) noexcept;

    /// Gives the driver what unback() left here for the next back(). Says how many bytes.
    std::uint64_t release_spare() noexcept { return chunks_->trim(); }
    std::uint64_t spare_bytes() const noexcept { return chunks_->kept_bytes(); }
    std::uint64_t held_bytes() const noexcept { return chunks_->made_bytes(); }

    Result<void> admit(StreamHandle stream) noexcept { return marks_.admit(stream); }
    void forget(StreamHandle stream) noexcept { marks_.forget(stream); }
    Result<bool> may_mark(StreamHandle stream) noexcept { return marks_.may_mark(stream); }
    Result<Event> mark(StreamHandle stream) noexcept { return marks_.mark(stream); }
    Result<bool> passed(const Event& event) const noexcept { return marks_.passed(event); }
    Result<void> wait(const Event& event) const noexcept { return marks_.wait(event); }
    Result<void> order(StreamHandle stream, const Event& event) noexcept {
        return marks_.order(stream, event);
    }
    Result<void> wait_for_all() const noexcept { return marks_.wait_for_all(); }

   private:
    DeviceBacking(const Options& options, std::uint64_t capacity_bytes,
                  std::unique_ptr<DeviceChunks> chunks);
    Result<void> reserve_addresses();
    std::size_t number_of(std::uint64_t address) const noexcept {
        return static_cast<std::size_t>((address - addresses_.address) / chunk_bytes());
    }
    Result<void> unmap(std::uint64_t address, std::uint64_t chunks) noexcept;

    const std::shared_ptr<const CudaContext> context_;
    const std::uint64_t capacity_bytes_;
    const std::vector<CUmemAccessDesc> access_;
    std::unique_ptr<DeviceChunks> chunks_;
    HeapAddresses addresses_;
    std::vector<CUmemGenericAllocationHandle> homes_;  // by chunk of the large and small part
    bool some_windows_stayed_ = false;                 // because the driver did not unmap them
    DeviceMarks marks_;
};

}  // namespace frostline
