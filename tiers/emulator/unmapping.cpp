// Page tables of what the driver hands out. Every mapping is kept from children of a fork, whose
// parent's device memory is none of their business.
#include "tiers/emulator/unmapping.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "tiers/emulator/driver.h"

namespace frostline::emulator {
namespace {

constexpr std::size_t kPage = 4096;
constexpr int kReadWrite = PROT_READ | PROT_WRITE;

std::size_t whole_pages(std::size_t bytes) {
    return (bytes + kPage - 1) / kPage * kPage;
}

void* pointer(std::uintptr_t address) {
    return reinterpret_cast<void*>(address);
}

// munmap and mprotect of what is known to be mapped fail only when the kernel runs out of areas; to
// go on would leave memory reachable that shall not be.
void must_succeed(bool success, const char* what) {
    if (success) return;
    std::perror(what);
    std::abort();
}

}  // namespace

std::uintptr_t reserve_addresses(std::size_t bytes, std::size_t alignment, std::uintptr_t near) {
    const std::size_t slack = alignment > kPage ? alignment : 0;
    if (bytes + slack < bytes) return 0;
    void* const got = ::mmap(pointer(near), bytes + slack, PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (got == MAP_FAILED) return 0;
    const auto first = reinterpret_cast<std::uintptr_t>(got);
    if (slack == 0) return first;
    const std::uintptr_t start = (first + alignment - 1) & ~(alignment - 1);
    if (start != first) must_succeed(::munmap(got, start - first) == 0, "munmap");
    const std::uintptr_t end = first + bytes + slack;
    if (end != start + bytes) {
        must_succeed(::munmap(pointer(start + bytes), end - start - bytes) == 0, "munmap");
    }
    return start;
}

void release_addresses(std::uintptr_t start, std::size_t bytes) {
    must_succeed(::munmap(pointer(start), bytes) == 0, "munmap");
}

bool map_physical(const PhysicalMemory& physical, std::uintptr_t start, std::size_t bytes,
                  bool accessible) {
    const int file = physical.store != nullptr ? physical.store->file() : physical.file;
    void* const got =
        ::mmap(pointer(start), bytes, accessible ? kReadWrite : PROT_NONE,
               MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file, static_cast<off_t>(physical.offset));
    if (got == MAP_FAILED) {
        unmap_to_reservation(start, bytes);
        return false;
    }
    must_succeed(::madvise(got, bytes, MADV_DONTFORK) == 0, "madvise");
    return true;
}

void unmap_to_reservation(std::uintptr_t start, std::size_t bytes) {
    void* const got = ::mmap(pointer(start), bytes, PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    must_succeed(got != MAP_FAILED, "mmap");
}

bool protect_mapping(const Region& region) {
    const auto strongest = *std::max_element(region.access.begin(), region.access.end());
    int protection = PROT_NONE;
    if (strongest == CU_MEM_ACCESS_FLAGS_PROT_READ) protection = PROT_READ;
    if (strongest == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) protection = kReadWrite;
    return ::mprotect(pointer(region.start), region.bytes, protection) == 0;
}

Region& add_region(Region region) {
    region.buffer_id = driver().next_id++;
    if (region.physical) ++region.physical->mappings;
    const std::uintptr_t start = region.start;
    driver().freed_addresses.erase(start);
    return driver().memory.regions.insert_or_assign(start, std::move(region)).first->second;
}

void remove_region(std::uintptr_t start) {
    auto& regions = driver().memory.regions;
    const auto it = regions.find(start);
    Region& region = it->second;
    switch (region.kind) {
        case RegionKind::mapping:
            unmap_to_reservation(start, region.bytes);
            break;
        case RegionKind::registered:
            break;
        default:
            release_addresses(start, region.mapped_bytes);
    }
    if (region.physical) {
        PhysicalMemory& physical = *region.physical;
        --physical.mappings;
        if (physical.handle != 0 && physical.handle_uses == 0 && physical.mappings == 0) {
            driver().physical.remove(physical.handle);
        }
    }
    regions.erase(it);
}

std::shared_ptr<PhysicalMemory> take_physical(Device* device, std::size_t bytes, bool own_file) {
    Driver& d = driver();
    if (device != nullptr && bytes > device->capacity_bytes - device->used_bytes) return nullptr;
    auto physical = std::make_shared<PhysicalMemory>();
    if (own_file) {
        physical->file = open_memory_file(bytes);
        if (physical->file < 0) return nullptr;
        physical->own_file = true;
    } else {
        PhysicalStore& store = device != nullptr ? device->store : d.host_store;
        if (!store.take(bytes, physical->offset)) return nullptr;
        physical->store = &store;
    }
    physical->bytes = bytes;
    if (device != nullptr) {
        physical->charged = &device->used_bytes;
        device->used_bytes += bytes;
    }
    return physical;
}

CUresult allocate_on_device(int device, std::size_t bytes, RegionKind kind, bool map_now,
                            const std::shared_ptr<Context>& context, std::uintptr_t& address) {
    if (bytes > find_device(device)->capacity_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
    const std::size_t pages = whole_pages(bytes);
    auto physical = take_physical(find_device(device), pages, false);
    if (!physical) return CUDA_ERROR_OUT_OF_MEMORY;
    const std::uintptr_t start = reserve_addresses(pages + kPage, kPage, 0);
    if (start == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    if (map_now && !map_physical(*physical, start, pages, true)) {
        release_addresses(start, pages + kPage);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    Region region;
    region.start = start;
    region.bytes = bytes;
    region.mapped_bytes = pages + kPage;
    region.kind = kind;
    region.device = device;
    region.physical = std::move(physical);
    region.context = context;
    region.live = map_now;
    add_region(std::move(region));
    address = start;
    return CUDA_SUCCESS;
}

}  // namespace frostline::emulator
