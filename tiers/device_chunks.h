// Physical memory of one device in handles of a few sizes. A handle never changes its size, and
// making one is the slow part of all that is done with it; so handles that are given back are kept,
// and leave only when their room is needed for another size, or by another user of the device.
#pragma once

#include "tiers/cuda_context.h"
#include "tiers/result.h"

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace frostline {

/// One physical handle; whoever took it owns it.
struct DeviceChunk {
    CUmemGenericAllocationHandle handle = 0;
    std::uint64_t size_bytes = 0;
};

/// Thread-safe. All that was taken must be given back before it ends.
class DeviceChunks {
   public:
    struct Options {
        std::shared_ptr<const CudaContext> context;
        /// The most that handles hold together, kept ones included.
        std::uint64_t capacity_bytes = 0;
        /// The largest handle; the others are the driver's granularity times powers of two.
        std::uint64_t chunk_bytes = std::uint64_t{16} << 20;
    };

    /// Errors: unsupported (the driver or the device has no virtual memory management),
    /// invalid_argument (chunk_bytes is no such size), the driver's.
    static Result<std::unique_ptr<DeviceChunks>> create(const Options& options) noexcept;
    DeviceChunks(const DeviceChunks&) = delete;
    DeviceChunks& operator=(const DeviceChunks&) = delete;
    ~DeviceChunks();

    std::uint64_t granularity_bytes() const noexcept { return granularity_bytes_; }
    std::uint64_t chunk_bytes() const noexcept { return chunk_bytes_; }

    /// Handles that hold `size_bytes` together, a multiple of the granularity, the largest first:
    /// all of them or none. Handles that are kept are given up where the device has no room.
    /// Errors: no_space (the capacity, or the device, has no room), out_of_memory, the driver's.
    Result<std::vector<DeviceChunk>> take(std::uint64_t size_bytes) noexcept;

    /// Takes handles back, which are mapped nowhere.
    void give(std::span<const DeviceChunk> chunks) noexcept;

    /// Gives the driver all that is kept, for other users of the device. Says how many bytes.
    std::uint64_t trim() noexcept;

    std::uint64_t kept_bytes() const noexcept;
    /// All that the driver has given, taken or kept.
    std::uint64_t made_bytes() const noexcept;

   private:
    DeviceChunks(const Options& options, std::uint64_t granularity_bytes);
    Result<DeviceChunk> take_one(std::uint64_t size_bytes);
    Result<DeviceChunk> make(std::uint64_t size_bytes);
    bool give_up_one() noexcept;
    void keep(const DeviceChunk& chunk) noexcept;
    void destroy(const DeviceChunk& chunk) noexcept;

    const std::shared_ptr<const CudaContext> context_;
    const std::uint64_t capacity_bytes_;
    const std::uint64_t chunk_bytes_;
    const std::uint64_t granularity_bytes_;

    mutable std::mutex mutex_;  // guards everything below
    std::uint64_t made_bytes_ = 0;
    std::uint64_t kept_bytes_ = 0;
    std::map<std::uint64_t, std::vector<DeviceChunk>> kept_;  // by size
};

}  // namespace frostline
