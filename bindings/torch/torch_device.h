// One GPU's memory as PyTorch uses it: a heap, and one for each memory pool, under one budget.
//
// Rule of concurrency. The lock guards the lists of pools and routes alone; under it a heap is made
// that nobody else knows, and heaps are asked what they own and for their figures, and called for
// nothing else: no other call of a heap takes this lock. Whoever uses a pool's heap holds the pool.
#pragma once

#include "allocator/device_heap.h"
#include "bindings/torch/torch_meter.h"
#include "bindings/torch/torch_pool.h"
#include "bindings/torch/torch_settings.h"
#include "tiers/cuda_context.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

namespace frostline {

/// Thread-safe. All its memory ends with it.
class TorchDevice {
   public:
    /// Other GPUs that can reach this one's memory are given access to it. `driver` outlives it.
    /// Errors: invalid_argument (no such device), those of make_device_heap(), the driver's.
    static Result<std::unique_ptr<TorchDevice>> create(const CudaDriver& driver, int device,
                                                       const TorchSettings& settings) noexcept;
    TorchDevice(const TorchDevice&) = delete;
    TorchDevice& operator=(const TorchDevice&) = delete;
    ~TorchDevice() = default;

    /// From the pool whose route holds for the stream, or else from the device's heap. Before it
    /// fails, memory that lies unused in the device's other heaps is given up. Of at least one
    /// byte. Errors: no_space, those of Heap::allocate().
    Result<void*> allocate(std::uint64_t size_bytes, CUstream stream) noexcept;

    /// Whether the address lies in one of the heaps.
    bool owns(const void* address) const noexcept;
    /// Errors: those of Heap::free(); nothing is counted then.
    Result<void> free(void* block, std::uint64_t size_bytes) noexcept;
    /// Errors: those of Heap::record_stream().
    Result<void> record_stream(void* block, CUstream stream) noexcept;
    /// The living block that the address lies in. Errors: invalid_argument, out_of_memory.
    Result<HeapAllocation> block_at(const void* address) const noexcept;

    /// Errors: out_of_memory.
    Result<void> begin_pool(TorchPoolId id, std::function<bool(CUstream)> filter) noexcept;
    /// Errors: not_found (no such route, or pool, was begun).
    Result<void> end_pool(TorchPoolId id) noexcept;
    Result<void> release_pool(TorchPoolId id) noexcept;

    /// Gives back all that nobody uses, after waiting for what uses it, and says how many bytes.
    std::uint64_t trim() noexcept;
    /// The budget becomes this part of the device's memory, and at most what the settings said.
    /// Errors: invalid_argument (not from 0 to 1).
    Result<void> set_memory_fraction(double fraction) noexcept;

    frostline_torch_statistics statistics() const noexcept;
    void reset_peaks() noexcept;
    void reset_accumulated() noexcept;
    /// What lives, heap by heap. May throw std::bad_alloc.
    std::vector<frostline_torch_block> live() const;

   private:
    using PoolRef = std::shared_ptr<TorchPool>;
    using PoolUse = std::pair<PoolRef, std::uint64_t>;  // and how often it had been begun

    TorchDevice(std::shared_ptr<CudaContext> context, const TorchSettings& settings,
                std::uint64_t memory_bytes);
    Result<void> set_up();
    Result<std::unique_ptr<DeviceHeap>> make_heap(const std::string& name, bool keeps_memory);

    PoolRef pool_for(CUstream stream) noexcept;
    PoolRef pool_at(const void* address) const noexcept;
    std::vector<PoolRef> all_pools() const;
    Result<DeviceHeap*> heap_of(TorchPool& pool) noexcept;
    Result<void*> allocate_from(TorchPool* pool, std::uint64_t size_bytes,
                                CUstream stream) noexcept;
    std::uint64_t end_unused_pools() noexcept;
    std::vector<PoolUse> unused_pools() const;
    static bool is_unused(const TorchPool& pool) noexcept;
    Error with_pools(const Error& error) const noexcept;

    const std::shared_ptr<CudaContext> context_;
    const TorchSettings settings_;
    const std::uint64_t memory_bytes_;
    const std::string name_;
    std::vector<int> peers_;
    HeapBudget budget_;
    std::unique_ptr<DeviceHeap> heap_;
    TorchFigure allocations_;
    TorchFigure allocated_bytes_;
    std::atomic<std::uint64_t> out_of_memory_{0};
    std::atomic<std::uint64_t> taken_before_reset_{0};  // of the budget
    std::atomic<std::uint64_t> freed_before_reset_{0};
    std::atomic<std::uint64_t> retries_before_reset_{0};
    std::atomic<std::size_t> route_count_{0};  // written under the lock
    std::atomic<std::size_t> pool_count_{0};

    mutable std::shared_mutex mutex_;  // guards everything below, and what TorchPool says
    std::vector<TorchRoute> routes_;
    std::vector<PoolRef> pools_;
};

}  // namespace frostline
