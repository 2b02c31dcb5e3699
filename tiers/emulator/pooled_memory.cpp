// Allocation and release in stream order. The room is taken when the call is made, so that running
// out is told to the caller; pages appear and vanish when the stream gets there.
#include "tiers/emulator/pooled_memory.h"

#include <algorithm>

#include "tiers/emulator/exported.h"
#include "tiers/emulator/unmapping.h"

namespace frostline::emulator {
namespace {

constexpr std::size_t kMostFreedRemembered = 100'000;

void remember_freed(std::uintptr_t start) {
    auto& freed = driver().freed_addresses;
    if (freed.size() == kMostFreedRemembered) freed.clear();
    freed.insert(start);
}

/// The pool keeps the room of what it frees, up to its threshold.
void keep_in_pool(MemoryPool& pool, std::size_t bytes) {
    pool.used_bytes -= bytes;
    const std::uint64_t reserved = pool.used_bytes + pool.kept_bytes;
    if (pool.release_threshold <= reserved) return;
    const std::uint64_t keep = std::min<std::uint64_t>(bytes, pool.release_threshold - reserved);
    pool.kept_bytes += keep;
    find_device(pool.device)->used_bytes += keep;
}

/// Runs at the point of the stream's order at which the memory is freed.
void free_in_order(std::uintptr_t start, std::uint64_t stream_id) {
    Region* const region = driver().memory.region_at(start);
    if (region == nullptr) return;
    const std::size_t bytes = region->bytes;
    region->live = false;
    const auto busy = [=] { return work_touching(start, bytes) != nullptr; };
    if (!busy()) {
        forget_allocation(start);
        return;
    }
    report_misuse("free-under-work",
                  fmt::format("{:#x} is freed in the order of stream {} while other work "
                              "touches it",
                              start, stream_id));
    driver().deferred.emplace_back([=] {
        if (busy()) return false;
        forget_allocation(start);
        return true;
    });
}

}  // namespace

void trim_pool(MemoryPool& pool, std::uint64_t keep) {
    const std::uint64_t reserved = pool.used_bytes + pool.kept_bytes;
    if (reserved <= keep) return;
    const std::uint64_t released = std::min(pool.kept_bytes, reserved - keep);
    pool.kept_bytes -= released;
    find_device(pool.device)->used_bytes -= released;
}

void forget_allocation(std::uintptr_t start) {
    const Region& region = driver().memory.regions.at(start);
    const std::shared_ptr<MemoryPool> pool = region.pool;
    const std::size_t bytes = region.physical ? region.physical->bytes : 0;
    remove_region(start);
    remember_freed(start);
    if (pool) keep_in_pool(*pool, bytes);
}

namespace {

std::shared_ptr<Operation> memory_operation(const std::shared_ptr<Stream>& stream,
                                            const char* what) {
    auto operation = std::make_shared<Operation>();
    operation->kind = OperationKind::memory;
    // An engine is needed only to be late.
    const bool late = driver().settings.jitter_us != 0;
    operation->engine = late ? EngineKind::d2d : EngineKind::none;
    operation->stream = stream;
    operation->device = stream->device;
    operation->what = what;
    return operation;
}

/// Makes room: what the pool keeps is used first; what is about to be freed is waited for.
CUresult take_room(Call& call, MemoryPool& pool, std::size_t bytes, std::uintptr_t& start,
                   const std::shared_ptr<Context>& context) {
    for (;;) {
        const std::uint64_t pages = (bytes + 4095) / 4096 * 4096;
        const std::uint64_t from_kept = std::min<std::uint64_t>(pool.kept_bytes, pages);
        if (pool.max_bytes != 0 && pool.used_bytes + pages > pool.max_bytes) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        Device& device = *find_device(pool.device);
        pool.kept_bytes -= from_kept;
        device.used_bytes -= from_kept;
        const CUresult result =
            allocate_on_device(pool.device, bytes, RegionKind::pooled, false, context, start);
        if (result == CUDA_SUCCESS) return result;
        pool.kept_bytes += from_kept;
        device.used_bytes += from_kept;
        const auto& regions = driver().memory.regions;
        const auto pending = std::find_if(regions.begin(), regions.end(), [&](const auto& entry) {
            return entry.second.freed && entry.second.device == pool.device;
        });
        if (pending == regions.end()) return result;
        const std::uint64_t awaited = pending->second.buffer_id;
        wait_until(call.lock, [&] {
            return std::none_of(regions.begin(), regions.end(), [&](const auto& entry) {
                return entry.second.buffer_id == awaited;
            });
        });
    }
}

CUresult allocate_in_order(Call& call, CUdeviceptr* address, std::size_t bytes,
                           const std::shared_ptr<MemoryPool>& pool,
                           const std::shared_ptr<Stream>& stream) {
    if (address == nullptr || bytes == 0) return refuse_value(call, "null, or no bytes");
    if (stream->capture) return CUDA_ERROR_NOT_SUPPORTED;
    if (stream->device != call.context->device) {
        report_misuse("wrong-device",
                      fmt::format("{}: a stream of device {}", call.function, stream->device));
    }
    std::uintptr_t start = 0;
    const CUresult result = take_room(call, *pool, bytes, start, call.context);
    if (result != CUDA_SUCCESS) return result;
    Region& region = *driver().memory.region_at(start);
    region.pool = pool;
    pool->used_bytes += region.physical->bytes;
    pool->used_high_bytes = std::max(pool->used_high_bytes, pool->used_bytes);
    pool->reserved_high_bytes =
        std::max(pool->reserved_high_bytes, pool->used_bytes + pool->kept_bytes);
    const auto operation = memory_operation(stream, "allocation in stream order");
    operation->touched.push_back({start, bytes, Need::possible});
    operation->finish = [start] {
        Region& there = *driver().memory.region_at(start);
        there.live = map_physical(*there.physical, start, there.physical->bytes, true);
    };
    const CUresult submitted = submit(operation);
    if (submitted != CUDA_SUCCESS) {
        forget_allocation(start);
        return submitted;
    }
    *address = start;
    return CUDA_SUCCESS;
}

}  // namespace
}  // namespace frostline::emulator

using namespace frostline::emulator;

FROSTLINE_EXPORTED CUresult CUDAAPI cuMemAllocAsync(CUdeviceptr* address, std::size_t bytes,
                                                    CUstream handle) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        CUresult error = CUDA_SUCCESS;
        const auto stream = resolve_stream(call.context, handle, error);
        if (!stream) return error;
        const std::shared_ptr<MemoryPool> pool = find_device(stream->device)->current_pool;
        return allocate_in_order(call, address, bytes, pool, stream);
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuMemAllocFromPoolAsync(CUdeviceptr* address, std::size_t bytes,
                                                            CUmemoryPool pool_handle,
                                                            CUstream handle) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        CUresult error = CUDA_SUCCESS;
        const auto pool = resolve_pool(pool_handle, error);
        if (!pool) return error;
        const auto stream = resolve_stream(call.context, handle, error);
        if (!stream) return error;
        return allocate_in_order(call, address, bytes, pool, stream);
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuMemFreeAsync(CUdeviceptr address, CUstream handle) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (address == 0) return CUDA_SUCCESS;
        CUresult error = CUDA_SUCCESS;
        const auto stream = resolve_stream(call.context, handle, error);
        if (!stream) return error;
        if (stream->capture) return CUDA_ERROR_NOT_SUPPORTED;
        auto& regions = driver().memory.regions;
        const auto found = regions.find(address);
        if (found == regions.end() || found->second.freed) {
            const bool was = found != regions.end() || driver().freed_addresses.contains(address);
            return refuse(was ? "double-free" : "not-an-allocation",
                          fmt::format("cuMemFreeAsync of {:#x}", address));
        }
        if (found->second.kind != RegionKind::pooled) {
            return refuse("unpooled-free", fmt::format("cuMemFreeAsync of {:#x}", address));
        }
        const auto operation = memory_operation(stream, "release in stream order");
        operation->finish = [address, id = stream->id] { free_in_order(address, id); };
        found->second.freed = true;
        const CUresult submitted = submit(operation);
        if (submitted != CUDA_SUCCESS && regions.contains(address)) {
            regions.at(address).freed = false;
        }
        return submitted;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (pool == nullptr) return refuse_value(call, "pool is null");
        const Device* const found = find_device(device);
        if (found == nullptr) return CUDA_ERROR_INVALID_DEVICE;
        *pool = found->default_pool->handle;
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (pool == nullptr) return refuse_value(call, "pool is null");
        const Device* const found = find_device(device);
        if (found == nullptr) return CUDA_ERROR_INVALID_DEVICE;
        *pool = found->current_pool->handle;
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuDeviceSetMemPool(CUdevice device, CUmemoryPool handle) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        Device* const found = find_device(device);
        if (found == nullptr) return CUDA_ERROR_INVALID_DEVICE;
        CUresult error = CUDA_SUCCESS;
        auto pool = resolve_pool(handle, error);
        if (!pool) return error;
        if (pool->device != device) return refuse_value(call, "a pool of another device");
        found->current_pool = std::move(pool);
        return CUDA_SUCCESS;
    });
}
