// What an address is. Attributes are truthful, and the same by whatever address of a region they
// are asked for.
#include <cstring>

#include "tiers/emulator/exported.h"

using namespace frostline::emulator;

namespace {

template <class Value>
CUresult give(void* place, Value value) {
    // NOLINTNEXTLINE(bugprone-sizeof-expression): of a pointer its own bytes are wanted
    std::memcpy(place, &value, sizeof(value));
    return CUDA_SUCCESS;
}

CUcontext context_of(const Region& region) {
    const auto context = region.context.lock();
    return context && region.kind != RegionKind::mapping ? context->handle : nullptr;
}

CUmemoryPool pool_of(const Region& region) {
    return region.pool ? region.pool->handle : nullptr;
}

unsigned handle_types(const Region& region) {
    if (region.kind != RegionKind::mapping) return 0;
    return region.physical->properties.requestedHandleTypes;
}

int device_of(const Region& region) {
    if (!region.on_host()) return region.device;
    const auto context = region.context.lock();
    return context ? context->device : 0;
}

/// The host's address of the memory: there is one for host memory alone.
CUresult host_pointer(void* place, const Region& region, CUdeviceptr address) {
    if (!region.on_host()) return CUDA_ERROR_INVALID_VALUE;
    return give(place, reinterpret_cast<void*>(address));
}

CUresult ask(void* place, CUpointer_attribute attribute, const Region& region,
             CUdeviceptr address) {
    switch (attribute) {
        case CU_POINTER_ATTRIBUTE_CONTEXT:
            return give(place, context_of(region));
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
            return give(place, static_cast<unsigned>(region.on_host() ? CU_MEMORYTYPE_HOST
                                                                      : CU_MEMORYTYPE_DEVICE));
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
            return give(place, address);
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
            return host_pointer(place, region, address);
        case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
            return give(place, 0);
        case CU_POINTER_ATTRIBUTE_BUFFER_ID:
            return give(place, static_cast<unsigned long long>(region.buffer_id));
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
            return give(place, 0U);
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
            return give(place, device_of(region));
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
            return give(place, region.kind == RegionKind::allocation);
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
            return give(place, static_cast<CUdeviceptr>(region.start));
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
            return give(place, region.bytes);
        case CU_POINTER_ATTRIBUTE_MAPPED:
            return give(place, region.live);
        case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
            return give(place, handle_types(region));
        case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
            return give(place, false);
        case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
            return give(place, region.read_only ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ
                                                : CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
            return give(place, pool_of(region));
        case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
            return give(place, region.bytes);
        case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
            return give(place, reinterpret_cast<void*>(region.start));
        case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
            return give(place, static_cast<unsigned long long>(region.buffer_id));
        default:
            return CUDA_ERROR_NOT_SUPPORTED;
    }
}

/// The several-attributes form says nothing by zeroes where the single form fails.
std::size_t size_of(CUpointer_attribute attribute) {
    switch (attribute) {
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
            return 4;
        case CU_POINTER_ATTRIBUTE_MAPPED:
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
            return 1;
        default:
            return 8;
    }
}

}  // namespace

FROSTLINE_EXPORTED CUresult CUDAAPI cuPointerGetAttribute(void* place,
                                                          CUpointer_attribute attribute,
                                                          CUdeviceptr address) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (place == nullptr) return refuse_value(call, "the answer's place is null");
        // Programs ask about addresses that are none of the driver's; that is no misuse.
        const Region* const region = driver().memory.region_at(address);
        if (region != nullptr) return ask(place, attribute, *region, address);
        const Reservation* const reservation = driver().memory.reservation_at(address);
        if (reservation == nullptr) return CUDA_ERROR_INVALID_VALUE;
        switch (attribute) {
            case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
                return give(place, static_cast<CUdeviceptr>(reservation->start));
            case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
                return give(place, reservation->bytes);
            case CU_POINTER_ATTRIBUTE_MAPPED:
                return give(place, false);
            default:
                return CUDA_ERROR_INVALID_VALUE;
        }
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuPointerGetAttributes(unsigned count,
                                                           CUpointer_attribute* attributes,
                                                           void** places, CUdeviceptr address) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (count == 0 || attributes == nullptr || places == nullptr) {
            return refuse_value(call, "null, or nothing is asked for");
        }
        const Region* const region = driver().memory.region_at(address);
        for (unsigned i = 0; i < count; ++i) {
            const bool known = region != nullptr &&
                               ask(places[i], attributes[i], *region, address) == CUDA_SUCCESS;
            if (known) continue;
            std::memset(places[i], 0, size_of(attributes[i]));
            if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) give(places[i], -2);
        }
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuPointerSetAttribute(const void* value,
                                                          CUpointer_attribute attribute,
                                                          CUdeviceptr address) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (value == nullptr) return refuse_value(call, "value is null");
        if (driver().memory.region_at(address) == nullptr) return CUDA_ERROR_INVALID_VALUE;
        if (attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) return refuse_value(call, "attribute");
        return CUDA_ERROR_NOT_SUPPORTED;
    });
}
