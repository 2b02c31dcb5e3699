// Which heap serves whom. A request for which no route holds never meets a lock here.
#include "bindings/torch/torch_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <new>

namespace frostline {
namespace {

// Devices whose kernels and copies may use memory of this one: access to it is for us to give,
// because peer access that a program enables does not cover mapped memory.
Result<std::vector<int>> peers_of(const CudaContext& context) {
    const CudaDriver& driver = context.driver();
    int count = 0;
    FROSTLINE_TRY_VOID(driver.check("cuDeviceGetCount", driver.cuDeviceGetCount(&count)));
    std::vector<int> peers;
    for (int other = 0; other < count; ++other) {
        if (other == context.device()) continue;
        CUdevice handle = 0;
        int can = 0;
        FROSTLINE_TRY_VOID(driver.check("cuDeviceGet", driver.cuDeviceGet(&handle, other)));
        FROSTLINE_TRY_VOID(driver.check(
            "cuDeviceCanAccessPeer", driver.cuDeviceCanAccessPeer(&can, handle, context.handle())));
        if (can != 0) peers.push_back(other);
    }
    return peers;
}

}  // namespace

TorchDevice::TorchDevice(std::shared_ptr<CudaContext> context, const TorchSettings& settings,
                         std::uint64_t memory_bytes)
    : context_(std::move(context)),
      settings_(settings),
      memory_bytes_(memory_bytes),
      name_(fmt::format("PyTorch's heap of GPU {}", context_->device())),
      budget_(settings.budget_bytes) {}

Result<std::unique_ptr<TorchDevice>> TorchDevice::create(const CudaDriver& driver, int device,
                                                         const TorchSettings& settings) noexcept {
    try {
        FROSTLINE_TRY(auto context, CudaContext::create(driver, device));
        FROSTLINE_TRY_VOID(driver.need({CudaFeature::virtual_memory, CudaFeature::streams}));
        std::size_t memory_bytes = 0;
        FROSTLINE_TRY_VOID(driver.check("cuDeviceTotalMem",
                                        driver.cuDeviceTotalMem(&memory_bytes, context->handle())));
        std::unique_ptr<TorchDevice> made(
            new TorchDevice(std::move(context), settings, memory_bytes));
        FROSTLINE_TRY_VOID(made->set_up());
        return made;
    } catch (const std::bad_alloc&) {
        return Error(Errc::out_of_memory, 0, "no memory for the records of GPU {}", device);
    }
}

Result<void> TorchDevice::set_up() {
    FROSTLINE_TRY(peers_, peers_of(*context_));
    if (settings_.budget_bytes == 0) {
        std::size_t free = 0;
        std::size_t total = 0;
        FROSTLINE_TRY_VOID(context_->run([&] {
            const CudaDriver& driver = context_->driver();
            return driver.check("cuMemGetInfo", driver.cuMemGetInfo(&free, &total));
        }));
        budget_.set_limit(free / settings_.chunk_bytes * settings_.chunk_bytes);
    }
    FROSTLINE_TRY(heap_, make_heap(name_, false));
    return ok();
}

Result<std::unique_ptr<DeviceHeap>> TorchDevice::make_heap(const std::string& name,
                                                           bool keeps_memory) {
    DeviceHeapOptions options;
    options.context = context_;
    // A pool may need all that the budget allows later; the budget itself limits them together.
    options.capacity_bytes =
        heap_ == nullptr ? budget_.limit_bytes() : heap_->backing().capacity_bytes();
    options.chunk_bytes = settings_.chunk_bytes;
    options.peers = peers_;
    options.heap.name = name;
    options.heap.budget = &budget_;
    options.heap.keeps_memory = keeps_memory;
    return make_device_heap(options);
}

Result<void*> TorchDevice::allocate(std::uint64_t size_bytes, CUstream stream) noexcept {
    PoolRef pool;
    if (route_count_.load(std::memory_order_acquire) != 0) pool = pool_for(stream);
    auto block = allocate_from(pool.get(), size_bytes, stream);
    if (!block && block.error().code() == Errc::no_space) {
        // A pool has no way to the memory that lies idle in the device's heap, and neither has any
        // to that of pools that ended.
        const std::uint64_t given_up =
            end_unused_pools() + (pool ? heap_->trim(true).value_or(0) : 0);
        if (given_up > 0) block = allocate_from(pool.get(), size_bytes, stream);
        if (block) {
            budget_.note_retry();
        } else {
            out_of_memory_.fetch_add(1, std::memory_order_relaxed);
            block = with_pools(block.error());
        }
    }
    if (!block) {
        if (pool) pool->live.fetch_sub(1, std::memory_order_relaxed);
        return block;
    }
    allocations_.add(1);
    allocated_bytes_.add(size_bytes);
    return block;
}

// A heap says what it has itself; that may be little because pools have the rest.
Error TorchDevice::with_pools(const Error& error) const noexcept {
    const frostline_torch_statistics now = statistics();
    if (now.pools == 0) return error;
    constexpr double kMiB = 1 << 20;
    const auto mib = [](std::uint64_t bytes) { return static_cast<double>(bytes) / kMiB; };
    return Error(error.code(), error.native(),
                 "{:.2f} of a budget of {:.2f} MiB are mapped, {:.2f} by memory pools: {}",
                 mib(now.reserved_bytes.current), mib(now.budget_bytes), mib(now.pool_bytes),
                 error.message());
}

Result<void*> TorchDevice::allocate_from(TorchPool* pool, std::uint64_t size_bytes,
                                         CUstream stream) noexcept {
    const auto handle = reinterpret_cast<StreamHandle>(stream);
    if (pool == nullptr) return heap_->allocate(size_bytes, handle);
    FROSTLINE_TRY(DeviceHeap* const heap, heap_of(*pool));
    return heap->allocate(size_bytes, handle);
}

Result<void> TorchDevice::free(void* block, std::uint64_t size_bytes) noexcept {
    if (heap_->owns(block)) {
        FROSTLINE_TRY_VOID(heap_->free(block, size_bytes));
    } else {
        const PoolRef pool = pool_at(block);
        if (pool == nullptr) {
            return Error(Errc::invalid_argument, 0, "{} is no address of GPU {}'s heaps", block,
                         context_->device());
        }
        FROSTLINE_TRY_VOID(pool->heap.load()->free(block, size_bytes));
        pool->live.fetch_sub(1, std::memory_order_relaxed);
    }
    allocations_.remove(1);
    allocated_bytes_.remove(size_bytes);
    return ok();
}

bool TorchDevice::owns(const void* address) const noexcept {
    return heap_->owns(address) || pool_at(address) != nullptr;
}

Result<void> TorchDevice::record_stream(void* block, CUstream stream) noexcept {
    const auto handle = reinterpret_cast<StreamHandle>(stream);
    if (heap_->owns(block)) return heap_->record_stream(block, handle);
    const PoolRef pool = pool_at(block);
    if (pool != nullptr) return pool->heap.load()->record_stream(block, handle);
    return Error(Errc::invalid_argument, 0, "{} is no address of GPU {}'s heaps", block,
                 context_->device());
}

Result<HeapAllocation> TorchDevice::block_at(const void* address) const noexcept {
    const PoolRef pool = heap_->owns(address) ? nullptr : pool_at(address);
    const auto wanted = reinterpret_cast<std::uint64_t>(address);
    try {
        const DeviceHeap& heap = pool == nullptr ? *heap_ : *pool->heap.load();
        for (const HeapAllocation& each : heap.live()) {
            if (wanted - each.address < each.size_bytes) return each;
        }
    } catch (const std::bad_alloc&) {
        return Error(Errc::out_of_memory, 0, "listing the blocks of GPU {}", context_->device());
    }
    return Error(Errc::invalid_argument, 0, "no living block of GPU {} has the address {}",
                 context_->device(), address);
}

std::uint64_t TorchDevice::trim() noexcept {
    const std::uint64_t of_pools = end_unused_pools();
    return of_pools + heap_->trim(true).value_or(0);
}

Result<void> TorchDevice::set_memory_fraction(double fraction) noexcept {
    if (!std::isfinite(fraction) || fraction < 0 || fraction > 1) {
        return Error(Errc::invalid_argument, 0,
                     "a fraction of {} of GPU {}'s memory: use one from 0 to 1", fraction,
                     context_->device());
    }
    const auto part = static_cast<std::uint64_t>(fraction * static_cast<double>(memory_bytes_));
    // No heap can have more than it was made for.
    budget_.set_limit(std::min(part, heap_->backing().capacity_bytes()));
    return ok();
}

frostline_torch_statistics TorchDevice::statistics() const noexcept {
    frostline_torch_statistics all{};
    all.allocations = allocations_.read();
    all.allocated_bytes = allocated_bytes_.read();
    const std::uint64_t used = budget_.used_bytes();
    // What a reset noted is read first: so it is never more than what there is now.
    const std::uint64_t taken_before = taken_before_reset_.load(std::memory_order_acquire);
    const std::uint64_t retries_before = retries_before_reset_.load(std::memory_order_acquire);
    const std::uint64_t taken_ever = budget_.taken_bytes();
    const std::uint64_t taken = taken_ever - taken_before;
    const std::uint64_t freed_ever = taken_ever > used ? taken_ever - used : 0;
    const std::uint64_t freed_before = freed_before_reset_.load(std::memory_order_relaxed);
    all.reserved_bytes = {used, budget_.peak_bytes(), taken,
                          freed_ever > freed_before ? freed_ever - freed_before : 0};
    all.retries = budget_.retries() - retries_before;
    all.out_of_memory = out_of_memory_.load(std::memory_order_relaxed);
    all.budget_bytes = budget_.limit_bytes();
    all.pending_bytes = heap_->statistics().pending;
    const std::shared_lock lock(mutex_);
    for (const PoolRef& pool : pools_) {
        const DeviceHeap* const heap = pool->heap.load();
        if (heap == nullptr) continue;
        const HeapStatistics of_pool = heap->statistics();
        ++all.pools;
        all.pool_bytes += of_pool.mapped;
        all.pending_bytes += of_pool.pending;
    }
    return all;
}

void TorchDevice::reset_peaks() noexcept {
    allocations_.reset_peak();
    allocated_bytes_.reset_peak();
    budget_.reset_peak();
}

void TorchDevice::reset_accumulated() noexcept {
    allocations_.reset_accumulated();
    allocated_bytes_.reset_accumulated();
    const std::uint64_t taken = budget_.taken_bytes();
    const std::uint64_t used = budget_.used_bytes();
    taken_before_reset_.store(taken, std::memory_order_release);
    freed_before_reset_.store(taken > used ? taken - used : 0, std::memory_order_relaxed);
    retries_before_reset_.store(budget_.retries(), std::memory_order_release);
    out_of_memory_.store(0, std::memory_order_relaxed);
}

std::vector<frostline_torch_block> TorchDevice::live() const {
    std::vector<frostline_torch_block> blocks;
    const auto add = [&](const DeviceHeap& heap, TorchPoolId id) {
        for (const HeapAllocation& each : heap.live()) {
            blocks.push_back({each.address, each.size_bytes, each.birth, {id.first, id.second}});
        }
    };
    add(*heap_, {0, 0});
    for (const PoolRef& pool : all_pools()) {
        if (const DeviceHeap* const heap = pool->heap.load()) add(*heap, pool->id);
    }
    return blocks;
}

}  // namespace frostline
