// Physical memory by handle: made, counted, asked about and released. It lives until its handle is
// released as often as it was taken, and nothing maps it any more.
#include "tiers/emulator/physical_handles.h"

#include "tiers/emulator/exported.h"
#include "tiers/emulator/unmapping.h"

namespace frostline::emulator {

bool is_on_device(const CUmemAllocationProp& properties) {
    return properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE;
}

CUresult check_properties(const Call& call, const CUmemAllocationProp& properties) {
    if (properties.type != CU_MEM_ALLOCATION_TYPE_PINNED) {
        return refuse_value(call, "the type of allocation has to be pinned");
    }
    const auto types = static_cast<unsigned>(properties.requestedHandleTypes);
    switch (properties.location.type) {
        case CU_MEM_LOCATION_TYPE_DEVICE:
            if (find_device(properties.location.id) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
            break;
        case CU_MEM_LOCATION_TYPE_HOST:
            if (types != 0) return refuse_value(call, "plain host memory cannot be exported");
            break;
        case CU_MEM_LOCATION_TYPE_HOST_NUMA:
            if (properties.location.id != 0) return refuse_value(call, "there is NUMA node 0 only");
            break;
        default:
            return refuse_value(call, "location");
    }
    if ((types & ~unsigned{CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR}) != 0) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_SUCCESS;
}

std::shared_ptr<PhysicalMemory> resolve_physical(const Call& call,
                                                 CUmemGenericAllocationHandle handle,
                                                 CUresult& error) {
    auto physical = driver().physical.find(handle);
    if (physical && physical->handle_uses != 0) return physical;
    const bool released = driver().physical.state(handle) != HandleState::unknown;
    error = refuse(released ? "destroyed-handle" : "bad-handle",
                   fmt::format("{}: physical handle {:#x}", call.function, handle));
    return nullptr;
}

std::size_t access_slot(const CUmemLocation& location) {
    return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? static_cast<std::size_t>(location.id)
                                                        : kMaxDevices;
}

CUresult check_access(const Call& call, const CUmemAccessDesc& description, const Region& region) {
    if (description.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
        description.flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
        description.flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
        return refuse_value(call, "access flags");
    }
    const CUmemLocation& location = description.location;
    switch (location.type) {
        case CU_MEM_LOCATION_TYPE_DEVICE:
            break;
        case CU_MEM_LOCATION_TYPE_HOST:
        case CU_MEM_LOCATION_TYPE_HOST_NUMA:
            if (region.on_host()) return CUDA_SUCCESS;
            return refuse_value(call, "the host cannot reach memory of a device");
        default:
            return refuse_value(call, "location");
    }
    if (find_device(location.id) == nullptr) {
        report_misuse("bad-value", fmt::format("{}: device {}", call.function, location.id));
        return CUDA_ERROR_INVALID_DEVICE;
    }
    const bool reachable =
        region.on_host() || location.id == region.device || driver().settings.peer;
    return reachable ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

}  // namespace frostline::emulator

using namespace frostline::emulator;

FROSTLINE_EXPORTED CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle* handle,
                                                std::size_t bytes,
                                                const CUmemAllocationProp* properties,
                                                unsigned long long flags) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::unsafe);
    return self.call([&](Call& call) -> CUresult {
        if (handle == nullptr || properties == nullptr || flags != 0) {
            return refuse_value(call, "null, or flags");
        }
        const CUresult error = check_properties(call, *properties);
        if (error != CUDA_SUCCESS) return error;
        if (bytes == 0 || bytes % driver().settings.granularity_bytes != 0) {
            return refuse("bad-size", fmt::format("cuMemCreate of {} bytes, granularity {}", bytes,
                                                  driver().settings.granularity_bytes));
        }
        Device* const device =
            is_on_device(*properties) ? find_device(properties->location.id) : nullptr;
        const bool exportable = properties->requestedHandleTypes != 0;
        auto physical = take_physical(device, bytes, exportable);
        if (!physical) return CUDA_ERROR_OUT_OF_MEMORY;
        physical->properties = *properties;
        physical->handle_uses = 1;
        physical->handle = driver().physical.add(physical);
        *handle = physical->handle;
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::unsafe);
    return self.call([&](Call&) -> CUresult {
        const auto physical = driver().physical.find(handle);
        if (!physical || physical->handle_uses == 0) {
            const bool was = driver().physical.state(handle) != HandleState::unknown;
            return refuse(was ? "double-release" : "bad-handle",
                          fmt::format("cuMemRelease of {:#x}", handle));
        }
        if (--physical->handle_uses == 0 && physical->mappings == 0) {
            driver().physical.remove(handle);
        }
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI
cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (handle == nullptr) return refuse_value(call, "handle is null");
        const auto where = reinterpret_cast<std::uintptr_t>(address);
        const Region* const region = driver().memory.region_at(where);
        if (region == nullptr || region->kind != RegionKind::mapping) {
            return refuse("not-mapped", fmt::format("{} at {:#x}", call.function, where));
        }
        ++region->physical->handle_uses;
        *handle = region->physical->handle;
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI
cuMemGetAllocationGranularity(std::size_t* bytes, const CUmemAllocationProp* properties,
                              CUmemAllocationGranularity_flags option) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (bytes == nullptr || properties == nullptr) return refuse_value(call, "null argument");
        if (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
            option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) {
            return refuse_value(call, "option");
        }
        const CUresult error = check_properties(call, *properties);
        if (error == CUDA_SUCCESS) *bytes = driver().settings.granularity_bytes;
        return error;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuMemGetAllocationPropertiesFromHandle(
    CUmemAllocationProp* properties, CUmemGenericAllocationHandle handle) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (properties == nullptr) return refuse_value(call, "properties is null");
        CUresult error = CUDA_SUCCESS;
        const auto physical = resolve_physical(call, handle, error);
        if (!physical) return error;
        *properties = physical->properties;
        return CUDA_SUCCESS;
    });
}
