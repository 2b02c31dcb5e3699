// The pools of a device: which there are, who allocates from them now, and when their memory ends.
#include "bindings/torch/torch_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

namespace frostline {

namespace {

Error no_pool(const char* what, TorchPoolId id, int device) noexcept {
    return Error(Errc::not_found, 0, "{} the memory pool ({}, {}) of GPU {}, which was not begun",
                 what, id.first, id.second, device);
}

}  // namespace

// A filter may ask the driver whether a stream is captured, and may fail; then it does not hold.
// The block that is about to be born is counted already, so that the pool does not end meanwhile.
TorchDevice::PoolRef TorchDevice::pool_for(CUstream stream) noexcept {
    const std::shared_lock lock(mutex_);
    for (const TorchRoute& route : routes_) {
        try {
            if (route.filter && !route.filter(stream)) continue;
            route.pool->live.fetch_add(1, std::memory_order_relaxed);
            return route.pool;
        } catch (...) {  // NOLINT(bugprone-empty-catch): whatever PyTorch throws, it is no yes
        }
    }
    return nullptr;
}

TorchDevice::PoolRef TorchDevice::pool_at(const void* address) const noexcept {
    if (pool_count_.load(std::memory_order_acquire) == 0) return nullptr;
    const std::shared_lock lock(mutex_);
    for (const PoolRef& pool : pools_) {
        const DeviceHeap* const heap = pool->heap.load(std::memory_order_acquire);
        if (heap != nullptr && heap->owns(address)) return pool;
    }
    return nullptr;
}

std::vector<TorchDevice::PoolRef> TorchDevice::all_pools() const {
    const std::shared_lock lock(mutex_);
    return pools_;
}

// Not before it is needed: a heap has many addresses, and most of what a program begins stays
// empty.
Result<DeviceHeap*> TorchDevice::heap_of(TorchPool& pool) noexcept {
    if (DeviceHeap* const heap = pool.heap.load(std::memory_order_acquire)) return heap;
    const std::lock_guard lock(mutex_);
    if (pool.owner == nullptr) {
        try {
            FROSTLINE_TRY(pool.owner, make_heap(pool.name, true));
        } catch (const std::bad_alloc&) {
            return Error(Errc::out_of_memory, 0, "making a memory pool of GPU {}",
                         context_->device());
        }
        pool.heap.store(pool.owner.get(), std::memory_order_release);
    }
    return pool.owner.get();
}

Result<void> TorchDevice::begin_pool(TorchPoolId id,
                                     std::function<bool(CUstream)> filter) noexcept {
    const std::lock_guard lock(mutex_);
    try {
        auto found = std::find_if(pools_.begin(), pools_.end(),
                                  [&](const PoolRef& pool) { return pool->id == id; });
        routes_.reserve(routes_.size() + 1);
        if (found == pools_.end()) {
            auto pool = std::make_shared<TorchPool>();
            pool->id = id;
            pool->name = fmt::format("PyTorch's memory pool ({}, {}) of GPU {}", id.first,
                                     id.second, context_->device());
            found = pools_.insert(pools_.end(), std::move(pool));
            pool_count_.store(pools_.size(), std::memory_order_release);
        }
        routes_.push_back({*found, std::move(filter)});
        ++(*found)->uses;
        ++(*found)->begun;
        route_count_.store(routes_.size(), std::memory_order_release);
        return ok();
    } catch (const std::bad_alloc&) {
        return Error(Errc::out_of_memory, 0, "beginning a memory pool of GPU {}",
                     context_->device());
    }
}

// The newest of the pool's: an inner capture ends before an outer one.
Result<void> TorchDevice::end_pool(TorchPoolId id) noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(routes_.rbegin(), routes_.rend(),
                                    [&](const TorchRoute& route) { return route.pool->id == id; });
    if (found == routes_.rend()) return no_pool("ending", id, context_->device());
    routes_.erase(std::next(found).base());
    route_count_.store(routes_.size(), std::memory_order_release);
    return ok();
}

Result<void> TorchDevice::release_pool(TorchPoolId id) noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(pools_.begin(), pools_.end(),
                                    [&](const PoolRef& pool) { return pool->id == id; });
    if (found == pools_.end() || (*found)->uses == 0) {
        return no_pool("releasing", id, context_->device());
    }
    --(*found)->uses;
    return ok();
}

// Bytes that were mapped. The device is waited for without the lock, because what it runs may free
// a block of a pool; a pool that is begun meanwhile is used again.
std::uint64_t TorchDevice::end_unused_pools() noexcept {
    if (pool_count_.load(std::memory_order_acquire) == 0) return 0;
    try {
        std::vector<PoolUse> unused = unused_pools();
        if (unused.empty()) return 0;
        // A replay of what was recorded there may still run. If the driver refuses to wait, they
        // stay.
        const auto idle = context_->run([&] {
            const CudaDriver& driver = context_->driver();
            return driver.check("cuCtxSynchronize", driver.cuCtxSynchronize());
        });
        if (!idle) return 0;
        std::vector<PoolRef> ending;  // ends without the lock, too
        ending.reserve(unused.size());
        {
            const std::lock_guard lock(mutex_);
            for (const auto& [pool, begun] : unused) {
                if (pool->begun != begun || !is_unused(*pool)) continue;
                std::erase(pools_, pool);
                ending.push_back(pool);
            }
            pool_count_.store(pools_.size(), std::memory_order_release);
        }
        const std::uint64_t before = budget_.used_bytes();
        unused.clear();
        ending.clear();
        const std::uint64_t after = budget_.used_bytes();
        return before > after ? before - after : 0;
    } catch (const std::bad_alloc&) {
        return 0;  // they stay for another time
    }
}

// None while any is begun: somebody captures a graph then, which waiting for the device would
// spoil.
std::vector<TorchDevice::PoolUse> TorchDevice::unused_pools() const {
    const std::shared_lock lock(mutex_);
    std::vector<PoolUse> unused;
    if (!routes_.empty()) return unused;
    for (const PoolRef& pool : pools_) {
        if (is_unused(*pool)) unused.emplace_back(pool, pool->begun);
    }
    return unused;
}

bool TorchDevice::is_unused(const TorchPool& pool) noexcept {
    return pool.uses == 0 && pool.live.load(std::memory_order_relaxed) == 0;
}

}  // namespace frostline
