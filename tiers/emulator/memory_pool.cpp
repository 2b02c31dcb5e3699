// Pools as objects: made, set, asked about and destroyed. A pool that was destroyed lives until its
// last allocation is freed.
#include "tiers/emulator/memory_pool.h"

#include "tiers/emulator/exported.h"
#include "tiers/emulator/pooled_memory.h"

namespace frostline::emulator {

std::shared_ptr<MemoryPool> make_default_pool(int device) {
    auto pool = make_pool(device);
    pool->is_default = true;
    return pool;
}

std::shared_ptr<MemoryPool> make_pool(int device) {
    auto pool = std::make_shared<MemoryPool>();
    pool->device = device;
    pool->access.fill(CU_MEM_ACCESS_FLAGS_PROT_NONE);
    pool->access[static_cast<std::size_t>(device)] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    pool->handle = reinterpret_cast<CUmemoryPool>(driver().pools.add(pool));
    return pool;
}

std::shared_ptr<MemoryPool> resolve_pool(CUmemoryPool handle, CUresult& error) {
    const auto number = reinterpret_cast<std::uint64_t>(handle);
    auto pool = driver().pools.find(number);
    if (pool) return pool;
    const bool was = driver().pools.state(number) == HandleState::destroyed;
    error = refuse(was ? "destroyed-handle" : "bad-handle", fmt::format("pool {:#x}", number));
    return nullptr;
}

}  // namespace frostline::emulator

using namespace frostline::emulator;

namespace {

template <class Body>
CUresult with_pool(Function& self, CUmemoryPool handle, Body&& body) {
    return self.call([&](Call& call) -> CUresult {
        CUresult error = CUDA_SUCCESS;
        const auto pool = resolve_pool(handle, error);
        if (!pool) return error;
        return body(call, *pool);
    });
}

int* reuse_switch(MemoryPool& pool, CUmemPool_attribute attribute) {
    switch (attribute) {
        case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
            return pool.reuse.data();
        case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
            return &pool.reuse[1];
        case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
            return &pool.reuse[2];
        default:
            return nullptr;
    }
}

}  // namespace

FROSTLINE_EXPORTED CUresult CUDAAPI cuMemPoolCreate(CUmemoryPool* pool,
                                                    const CUmemPoolProps* properties) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::unsafe);
    return self.call([&](Call& call) -> CUresult {
        if (pool == nullptr || properties == nullptr) return refuse_value(call, "null argument");
        if (properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED) {
            return refuse_value(call, "the type of allocation has to be pinned");
        }
        if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
            properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE) {
            return CUDA_ERROR_NOT_SUPPORTED;
        }
        if (find_device(properties->location.id) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
        const auto made = make_pool(properties->location.id);
        made->max_bytes = properties->maxSize;
        *pool = made->handle;
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuMemPoolDestroy(CUmemoryPool handle) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::unsafe);
    return with_pool(self, handle, [&](Call& call, MemoryPool& pool) -> CUresult {
        if (pool.is_default) return refuse_value(call, "a default pool cannot be destroyed");
        Device& device = *find_device(pool.device);
        if (device.current_pool.get() == &pool) device.current_pool = device.default_pool;
        pool.destroyed = true;
        pool.release_threshold = 0;
        trim_pool(pool, 0);
        driver().pools.remove(reinterpret_cast<std::uint64_t>(handle));
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuMemPoolSetAttribute(CUmemoryPool handle,
                                                          CUmemPool_attribute attribute,
                                                          void* value) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return with_pool(self, handle, [&](Call& call, MemoryPool& pool) -> CUresult {
        if (value == nullptr) return refuse_value(call, "value is null");
        if (int* const reuse = reuse_switch(pool, attribute)) {
            *reuse = *static_cast<int*>(value);
            return CUDA_SUCCESS;
        }
        const std::uint64_t number = *static_cast<cuuint64_t*>(value);
        switch (attribute) {
            case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
                pool.release_threshold = number;
                return CUDA_SUCCESS;
            case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
                if (number != 0) return refuse_value(call, "a peak is reset to 0 only");
                pool.used_high_bytes = pool.used_bytes;
                return CUDA_SUCCESS;
            case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
                if (number != 0) return refuse_value(call, "a peak is reset to 0 only");
                pool.reserved_high_bytes = pool.used_bytes + pool.kept_bytes;
                return CUDA_SUCCESS;
            default:
                return refuse_value(call, "attribute");
        }
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuMemPoolGetAttribute(CUmemoryPool handle,
                                                          CUmemPool_attribute attribute,
                                                          void* value) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return with_pool(self, handle, [&](Call& call, MemoryPool& pool) -> CUresult {
        if (value == nullptr) return refuse_value(call, "value is null");
        if (const int* const reuse = reuse_switch(pool, attribute)) {
            *static_cast<int*>(value) = *reuse;
            return CUDA_SUCCESS;
        }
        auto& number = *static_cast<cuuint64_t*>(value);
        switch (attribute) {
            case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
                number = pool.release_threshold;
                break;
            case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
                number = pool.used_bytes;
                break;
            case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
                number = pool.used_high_bytes;
                break;
            case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
                number = pool.used_bytes + pool.kept_bytes;
                break;
            case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
                number = pool.reserved_high_bytes;
                break;
            default:
                return refuse_value(call, "attribute");
        }
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuMemPoolTrimTo(CUmemoryPool handle, std::size_t keep) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::unsafe);
    return with_pool(self, handle, [&](Call&, MemoryPool& pool) -> CUresult {
        trim_pool(pool, keep);
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuMemPoolSetAccess(CUmemoryPool handle,
                                                       const CUmemAccessDesc* descriptions,
                                                       std::size_t count) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::unsafe);
    return with_pool(self, handle, [&](Call& call, MemoryPool& pool) -> CUresult {
        if (descriptions == nullptr || count == 0) return refuse_value(call, "no descriptions");
        for (std::size_t i = 0; i < count; ++i) {
            const CUmemLocation& location = descriptions[i].location;
            if (location.type != CU_MEM_LOCATION_TYPE_DEVICE) return refuse_value(call, "location");
            if (find_device(location.id) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
            const bool own = location.id == pool.device;
            if (own && descriptions[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
                return refuse_value(call, "a pool's own device keeps its access");
            }
            if (!own && !driver().settings.peer) return CUDA_ERROR_INVALID_DEVICE;
        }
        for (std::size_t i = 0; i < count; ++i) {
            const auto device = static_cast<std::size_t>(descriptions[i].location.id);
            pool.access[device] = descriptions[i].flags;
        }
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuMemPoolGetAccess(CUmemAccess_flags* flags,
                                                       CUmemoryPool handle,
                                                       CUmemLocation* location) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return with_pool(self, handle, [&](Call& call, MemoryPool& pool) -> CUresult {
        if (flags == nullptr || location == nullptr) return refuse_value(call, "null argument");
        if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) return refuse_value(call, "location");
        if (find_device(location->id) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
        *flags = pool.access[static_cast<std::size_t>(location->id)];
        return CUDA_SUCCESS;
    });
}
