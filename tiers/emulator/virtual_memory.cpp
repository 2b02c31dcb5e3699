// Address space and physical memory, apart and brought together: cuMemAddressReserve, cuMemCreate,
// cuMemMap and their opposites, with every rule that the documentation states.
#include "tiers/emulator/exported.h"
#include "tiers/emulator/physical_handles.h"
#include "tiers/emulator/unmapping.h"

using namespace frostline::emulator;

namespace {

constexpr std::size_t kPage = 4096;

bool multiple_of_granularity(std::uint64_t value) {
    return value % driver().settings.granularity_bytes == 0;
}

CUresult refuse_size(const Call& call, std::string_view what) {
    return refuse("bad-size", fmt::format("{}: {}", call.function, what));
}

CUresult check_map_arguments(const Call& call, CUdeviceptr address, std::size_t bytes,
                             std::size_t offset, const PhysicalMemory& physical) {
    if (offset != 0) return refuse("bad-offset", fmt::format("cuMemMap at offset {}", offset));
    if (bytes == 0 || !multiple_of_granularity(bytes) || !multiple_of_granularity(address)) {
        return refuse_size(call, fmt::format("{} bytes at {:#x} with a granularity of {}", bytes,
                                             address, driver().settings.granularity_bytes));
    }
    if (bytes > physical.bytes) {
        return refuse_size(call, fmt::format("{} bytes of a handle of {}", bytes, physical.bytes));
    }
    const Reservation* const reservation = driver().memory.reservation_at(address);
    if (reservation == nullptr || reservation->start + reservation->bytes - address < bytes) {
        return refuse("not-reserved", fmt::format("cuMemMap of {} bytes at {:#x}", bytes, address));
    }
    if (driver().memory.overlaps_region(address, bytes)) {
        return refuse("map-over-mapping",
                      fmt::format("cuMemMap of {} bytes at {:#x}", bytes, address));
    }
    return CUDA_SUCCESS;
}

/// The starts of the mappings that fill the range exactly; a report and an error otherwise.
CUresult whole_mappings(const Call& call, CUdeviceptr address, std::size_t bytes,
                        std::vector<std::uintptr_t>& starts) {
    AddressSpace& memory = driver().memory;
    if (bytes == 0) return refuse_size(call, "no bytes");
    const std::uintptr_t end = address + bytes;
    std::uintptr_t at = address;
    while (at < end) {
        const Region* const region = memory.region_at(at);
        if (region == nullptr || region->kind != RegionKind::mapping) {
            return refuse("not-mapped", fmt::format("{}: no mapping at {:#x}", call.function, at));
        }
        if (region->start != at || region->end() > end) {
            return refuse("split-mapping",
                          fmt::format("{}: {:#x} and {} bytes are a part of the mapping at {:#x}",
                                      call.function, address, bytes, region->start));
        }
        starts.push_back(at);
        at = region->end();
    }
    return CUDA_SUCCESS;
}

/// Access that is taken away from under running work is as bad as an unmap.
void wait_unless_granted(const Call& call, const CUmemAccessDesc* descriptions, std::size_t count,
                         const std::vector<std::uintptr_t>& starts, std::uintptr_t address,
                         std::size_t bytes) {
    bool taken_away = false;
    for (std::size_t i = 0; i < count; ++i) {
        for (const std::uintptr_t start : starts) {
            const Region& region = driver().memory.regions.at(start);
            const auto now = region.access[access_slot(descriptions[i].location)];
            taken_away = taken_away || descriptions[i].flags < now;
        }
    }
    if (!taken_away) return;
    if (const auto work = work_touching(address, bytes)) {
        report_misuse("unmap-under-work",
                      fmt::format("access to {:#x} is taken away under a {}", address, work->what));
        wait_untouched(call.lock, address, bytes);
    }
}

}  // namespace

FROSTLINE_EXPORTED CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr* address, std::size_t bytes,
                                                        std::size_t alignment, CUdeviceptr near,
                                                        unsigned long long flags) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::unsafe);
    return self.call([&](Call& call) -> CUresult {
        if (address == nullptr || flags != 0) return refuse_value(call, "null, or flags");
        const std::size_t granularity = driver().settings.granularity_bytes;
        if (bytes == 0 || bytes % kPage != 0 || near % kPage != 0) {
            return refuse_size(call, fmt::format("{} bytes at {:#x}", bytes, near));
        }
        if ((alignment & (alignment - 1)) != 0) {
            return refuse_size(call, "the alignment is no power of two");
        }
        const std::uintptr_t start =
            reserve_addresses(bytes, std::max(alignment, granularity), near);
        if (start == 0) return CUDA_ERROR_OUT_OF_MEMORY;
        driver().memory.reservations[start] = {start, bytes};
        *address = start;
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuMemAddressFree(CUdeviceptr address, std::size_t bytes) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::unsafe);
    return self.call([&](Call& call) -> CUresult {
        auto& reservations = driver().memory.reservations;
        const auto found = reservations.find(address);
        if (found == reservations.end() || found->second.bytes != bytes) {
            return refuse("reservation-mismatch",
                          fmt::format("cuMemAddressFree of {} bytes at {:#x}", bytes, address));
        }
        if (driver().memory.overlaps_region(address, bytes)) {
            return refuse("free-mapped-reservation", fmt::format("{:#x}", address));
        }
        if (const auto work = work_touching(address, bytes)) {
            report_misuse("unmap-under-work",
                          fmt::format("cuMemAddressFree under a {}", work->what));
            wait_untouched(call.lock, address, bytes);
        }
        release_addresses(address, bytes);
        reservations.erase(address);
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuMemMap(CUdeviceptr address, std::size_t bytes,
                                             std::size_t offset,
                                             CUmemGenericAllocationHandle handle,
                                             unsigned long long flags) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::unsafe);
    return self.call([&](Call& call) -> CUresult {
        if (flags != 0) return refuse_value(call, "flags have to be 0");
        CUresult error = CUDA_SUCCESS;
        const auto physical = resolve_physical(call, handle, error);
        if (!physical) return error;
        error = check_map_arguments(call, address, bytes, offset, *physical);
        if (error != CUDA_SUCCESS) return error;
        if (!map_physical(*physical, address, bytes, false)) return CUDA_ERROR_OUT_OF_MEMORY;
        Region region;
        region.start = address;
        region.bytes = bytes;
        region.mapped_bytes = bytes;
        region.kind = RegionKind::mapping;
        region.device = is_on_device(physical->properties) ? physical->properties.location.id : -1;
        region.physical = physical;
        region.context = call.context;
        region.access.fill(CU_MEM_ACCESS_FLAGS_PROT_NONE);
        add_region(std::move(region));
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuMemUnmap(CUdeviceptr address, std::size_t bytes) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::unsafe);
    return self.call([&](Call& call) -> CUresult {
        std::vector<std::uintptr_t> starts;
        const CUresult error = whole_mappings(call, address, bytes, starts);
        if (error != CUDA_SUCCESS) return error;
        if (const auto work = work_touching(address, bytes)) {
            report_misuse("unmap-under-work",
                          fmt::format("{} bytes at {:#x} under a {}", bytes, address, work->what));
            wait_untouched(call.lock, address, bytes);
        }
        for (const std::uintptr_t start : starts) remove_region(start);
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuMemSetAccess(CUdeviceptr address, std::size_t bytes,
                                                   const CUmemAccessDesc* descriptions,
                                                   std::size_t count) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::unsafe);
    return self.call([&](Call& call) -> CUresult {
        if (descriptions == nullptr || count == 0) return refuse_value(call, "no descriptions");
        std::vector<std::uintptr_t> starts;
        CUresult error = whole_mappings(call, address, bytes, starts);
        if (error != CUDA_SUCCESS) return error;
        auto& regions = driver().memory.regions;
        for (std::size_t i = 0; i < count; ++i) {
            for (const std::uintptr_t start : starts) {
                error = check_access(call, descriptions[i], regions.at(start));
                if (error != CUDA_SUCCESS) return error;
            }
        }
        wait_unless_granted(call, descriptions, count, starts, address, bytes);
        for (const std::uintptr_t start : starts) {
            Region& region = regions.at(start);
            const auto before = region.access;
            for (std::size_t i = 0; i < count; ++i) {
                region.access[access_slot(descriptions[i].location)] = descriptions[i].flags;
            }
            if (protect_mapping(region)) continue;
            region.access = before;
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuMemGetAccess(unsigned long long* flags,
                                                   const CUmemLocation* location,
                                                   CUdeviceptr address) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (flags == nullptr || location == nullptr) return refuse_value(call, "null argument");
        const Region* const region = driver().memory.region_at(address);
        if (region == nullptr || region->kind != RegionKind::mapping) {
            return refuse("not-mapped", fmt::format("cuMemGetAccess at {:#x}", address));
        }
        if (location->type == CU_MEM_LOCATION_TYPE_DEVICE && find_device(location->id) == nullptr) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        *flags = region->access[access_slot(*location)];
        return CUDA_SUCCESS;
    });
}
