// Classic allocations: cuMemAlloc and what belongs to it.
#include "tiers/emulator/exported.h"
#include "tiers/emulator/pooled_memory.h"
#include "tiers/emulator/unmapping.h"

using namespace frostline::emulator;

namespace {

constexpr std::size_t kPitchAlignment = 512;

CUresult allocate(const Call& call, CUdeviceptr* address, std::size_t bytes) {
    std::uintptr_t start = 0;
    const CUresult result = allocate_on_device(call.context->device, bytes, RegionKind::allocation,
                                               true, call.context, start);
    if (result == CUDA_SUCCESS) *address = start;
    return result;
}

/// Reports what an address is that no allocation begins at.
CUresult refuse_free(const Call& call, CUdeviceptr address) {
    const bool was = driver().freed_addresses.contains(address);
    return refuse(was ? "double-free" : "not-an-allocation",
                  fmt::format("{} of {:#x}", call.function, address));
}

}  // namespace

FROSTLINE_EXPORTED CUresult CUDAAPI cuMemAlloc(CUdeviceptr* address, std::size_t bytes) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::unsafe);
    return self.call([&](Call& call) -> CUresult {
        if (address == nullptr || bytes == 0) return refuse_value(call, "null, or no bytes");
        return allocate(call, address, bytes);
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuMemAllocPitch(CUdeviceptr* address, std::size_t* pitch,
                                                    std::size_t width, std::size_t height,
                                                    unsigned element_bytes) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::unsafe);
    return self.call([&](Call& call) -> CUresult {
        if (address == nullptr || pitch == nullptr || width == 0 || height == 0) {
            return refuse_value(call, "null, or no bytes");
        }
        if (element_bytes != 4 && element_bytes != 8 && element_bytes != 16) {
            return refuse_value(call, "elements have 4, 8 or 16 bytes");
        }
        const std::size_t row = (width + kPitchAlignment - 1) / kPitchAlignment * kPitchAlignment;
        if (row < width || height > ~std::size_t{0} / row) return CUDA_ERROR_OUT_OF_MEMORY;
        const CUresult result = allocate(call, address, row * height);
        if (result == CUDA_SUCCESS) *pitch = row;
        return result;
    });
}

// NOLINTNEXTLINE(readability-non-const-parameter): the driver's own signature
FROSTLINE_EXPORTED CUresult CUDAAPI cuMemAllocManaged(CUdeviceptr* address, std::size_t bytes,
                                                      unsigned) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::unsafe);
    return self.call([&](Call& call) -> CUresult {
        if (address == nullptr || bytes == 0) return refuse_value(call, "null, or no bytes");
        return CUDA_ERROR_NOT_SUPPORTED;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuMemFree(CUdeviceptr address) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::unsafe);
    return self.call([&](Call& call) -> CUresult {
        if (address == 0) return CUDA_SUCCESS;
        auto& regions = driver().memory.regions;
        const auto found = regions.find(address);
        if (found == regions.end() || found->second.freed ||
            (found->second.kind != RegionKind::allocation &&
             found->second.kind != RegionKind::pooled)) {
            return refuse_free(call, address);
        }
        const std::size_t bytes = found->second.bytes;
        if (found->second.device != call.context->device) {
            report_misuse("wrong-device",
                          fmt::format("cuMemFree of memory of device {} while device {} is current",
                                      found->second.device, call.context->device));
        }
        if (const auto work = work_touching(address, bytes)) {
            report_misuse("free-under-work",
                          fmt::format("cuMemFree of {:#x} under a {}", address, work->what));
            wait_untouched(call.lock, address, bytes);
        }
        forget_allocation(address);
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuMemGetInfo(std::size_t* free_bytes,
                                                 std::size_t* total_bytes) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (free_bytes == nullptr || total_bytes == nullptr) {
            return refuse_value(call, "null argument");
        }
        const Device& device = *find_device(call.context->device);
        *free_bytes = device.capacity_bytes - device.used_bytes;
        *total_bytes = device.capacity_bytes;
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuMemGetAddressRange(CUdeviceptr* start, std::size_t* bytes,
                                                         CUdeviceptr address) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call&) -> CUresult {
        const Region* const region = driver().memory.region_at(address);
        if (region == nullptr || region->freed) return CUDA_ERROR_NOT_FOUND;
        if (start != nullptr) *start = region->start;
        if (bytes != nullptr) *bytes = region->bytes;
        return CUDA_SUCCESS;
    });
}
