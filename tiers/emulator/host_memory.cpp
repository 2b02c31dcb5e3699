// Pinned host memory: allocated by the driver, or the program's own and registered. Devices reach
// it at the host's address.
#include <sys/mman.h>

#include "tiers/emulator/exported.h"
#include "tiers/emulator/unmapping.h"

using namespace frostline::emulator;

namespace {

constexpr std::size_t kPage = 4096;
constexpr unsigned kAllocationFlags =
    CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
constexpr unsigned kRegistrationFlags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                                        CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;

CUresult allocate(const Call& call, void** address, std::size_t bytes, unsigned flags) {
    if (address == nullptr || bytes == 0) return refuse_value(call, "null, or no bytes");
    if ((flags & ~kAllocationFlags) != 0) return refuse_value(call, "flags");
    const std::size_t pages = (bytes + kPage - 1) / kPage * kPage;
    if (pages < bytes) return CUDA_ERROR_OUT_OF_MEMORY;
    void* const got =
        ::mmap(nullptr, pages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (got == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    Region region;
    region.start = reinterpret_cast<std::uintptr_t>(got);
    region.bytes = bytes;
    region.mapped_bytes = pages;
    region.kind = RegionKind::pinned;
    region.context = call.context;
    region.flags = flags;
    add_region(std::move(region));
    *address = got;
    return CUDA_SUCCESS;
}

/// The region of that kind that begins at the address; null after a report.
Region* begins_at(const Call& call, const void* address, RegionKind kind) {
    const auto start = reinterpret_cast<std::uintptr_t>(address);
    const auto found = driver().memory.regions.find(start);
    if (found != driver().memory.regions.end() && found->second.kind == kind) {
        return &found->second;
    }
    const bool was = driver().freed_addresses.contains(start);
    report_misuse(was ? "double-free" : "not-an-allocation",
                  fmt::format("{} of {:#x}", call.function, start));
    return nullptr;
}

void take_away(const Call& call, const Region& region, std::string_view misuse) {
    const std::uintptr_t start = region.start;
    const std::size_t bytes = region.bytes;
    if (const auto work = work_touching(start, bytes)) {
        report_misuse(misuse,
                      fmt::format("{} of {:#x} under a {}", call.function, start, work->what));
        wait_untouched(call.lock, start, bytes);
    }
    remove_region(start);
    driver().freed_addresses.insert(start);
}

/// As the driver pins pages, they are resident from now on, and whoever counts them sees them.
/// False if some are not mapped, or may not be written.
bool make_resident(std::uintptr_t start, std::size_t bytes, bool read_only) {
    const std::uintptr_t first = start / kPage * kPage;
    const std::size_t length = (start + bytes - first + kPage - 1) / kPage * kPage;
    const int advice = read_only ? MADV_POPULATE_READ : MADV_POPULATE_WRITE;
    return ::madvise(reinterpret_cast<void*>(first), length, advice) == 0;
}

}  // namespace

FROSTLINE_EXPORTED CUresult CUDAAPI cuMemAllocHost(void** address, std::size_t bytes) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::unsafe);
    return self.call([&](Call& call) { return allocate(call, address, bytes, 0); });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuMemHostAlloc(void** address, std::size_t bytes,
                                                   unsigned flags) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::unsafe);
    return self.call([&](Call& call) { return allocate(call, address, bytes, flags); });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuMemFreeHost(void* address) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::unsafe);
    return self.call([&](Call& call) -> CUresult {
        if (address == nullptr) return refuse_value(call, "null");
        const Region* const region = begins_at(call, address, RegionKind::pinned);
        if (region == nullptr) return CUDA_ERROR_INVALID_VALUE;
        take_away(call, *region, "free-under-work");
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuMemHostGetDevicePointer(CUdeviceptr* device, void* host,
                                                              unsigned flags) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (device == nullptr || flags != 0) return refuse_value(call, "null, or flags");
        const auto address = reinterpret_cast<std::uintptr_t>(host);
        const Region* const region = driver().memory.region_at(address);
        if (region == nullptr || !region->on_host() || region->kind == RegionKind::mapping) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *device = address;
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuMemHostGetFlags(unsigned* flags, void* host) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (flags == nullptr) return refuse_value(call, "flags is null");
        const auto address = reinterpret_cast<std::uintptr_t>(host);
        const Region* const region = driver().memory.region_at(address);
        if (region == nullptr || region->kind != RegionKind::pinned) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *flags = region->flags;
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuMemHostRegister(void* host, std::size_t bytes,
                                                      unsigned flags) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::unsafe);
    return self.call([&](Call& call) -> CUresult {
        const auto start = reinterpret_cast<std::uintptr_t>(host);
        if (host == nullptr || bytes == 0 || start + bytes < start) {
            return refuse_value(call, "null, or no bytes");
        }
        if ((flags & ~kRegistrationFlags) != 0) return refuse_value(call, "flags");
        if ((flags & CU_MEMHOSTREGISTER_IOMEMORY) != 0) return CUDA_ERROR_NOT_SUPPORTED;
        // The driver pins pages, so two registrations that share one overlap.
        const std::uintptr_t first = start / kPage * kPage;
        const std::size_t pages = (start + bytes - first + kPage - 1) / kPage * kPage;
        if (driver().memory.overlaps_region(first, pages)) {
            return refuse("host-register-overlap", fmt::format("{} bytes at {:#x}", bytes, start),
                          CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
        }
        const std::uint64_t limit = driver().settings.registration_limit_bytes;
        if (limit != 0 && bytes > limit) return CUDA_ERROR_OUT_OF_MEMORY;
        const bool read_only = (flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0;
        if (!make_resident(start, bytes, read_only)) {
            return refuse_value(call, "memory that is not mapped");
        }
        Region region;
        region.start = start;
        region.bytes = bytes;
        region.kind = RegionKind::registered;
        region.context = call.context;
        region.flags = flags;
        region.read_only = read_only;
        add_region(std::move(region));
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuMemHostUnregister(void* host) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::unsafe);
    return self.call([&](Call& call) -> CUresult {
        const Region* const region = begins_at(call, host, RegionKind::registered);
        if (region == nullptr) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
        take_away(call, *region, "unregister-under-work");
        return CUDA_SUCCESS;
    });
}
