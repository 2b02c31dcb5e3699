// IPC handles of classic allocations. They can be opened within this process only: a device's
// memory is one file, and to hand that to another process would show it everything. Memory that
// shall cross processes is created exportable (sharing.cpp) and then lies in a file of its own.
#include "tiers/emulator/ipc.h"

#include <unistd.h>

#include <cstring>
#include <map>

#include "tiers/emulator/exported.h"
#include "tiers/emulator/unmapping.h"

namespace frostline::emulator {
namespace {

constexpr std::uint64_t kMagic = 0x46726f73746c696e;

struct HandleContent {
    std::uint64_t magic;
    std::uint64_t process;
    std::uint64_t buffer_id;
};
static_assert(sizeof(HandleContent) <= sizeof(CUipcMemHandle));

// What is open: how often, by the address that it was opened at.
struct OpenHandles {
    struct Open {
        std::uint64_t buffer_id;
        std::uint64_t context;
        unsigned uses;
    };
    std::map<std::uintptr_t, Open> at;

    static OpenHandles& instance() {
        // Never destroyed, as the driver. What is leaked is reported as regions.
        static OpenHandles* const handles = [] {
            auto* const made = new OpenHandles;
            driver().owners.push_back({[](const auto&) {}, [made] { made->at.clear(); }});
            return made;
        }();
        return *handles;
    }
};

const Region* find_allocation(std::uint64_t buffer_id) {
    for (const auto& [start, region] : driver().memory.regions) {
        if (region.kind == RegionKind::allocation && region.buffer_id == buffer_id) return &region;
    }
    return nullptr;
}

CUresult map_again(const Call& call, const Region& original, std::uintptr_t& address) {
    const std::size_t pages = original.physical->bytes;
    const std::uintptr_t start =
        reserve_addresses(pages, static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)), 0);
    if (start == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    if (!map_physical(*original.physical, start, pages, true)) {
        release_addresses(start, pages);
        return CUDA_ERROR_MAP_FAILED;
    }
    Region region;
    region.start = start;
    region.bytes = original.bytes;
    region.mapped_bytes = pages;
    region.kind = RegionKind::imported;
    region.device = original.device;
    region.physical = original.physical;
    region.context = call.context;
    add_region(std::move(region));
    address = start;
    return CUDA_SUCCESS;
}

}  // namespace

CUresult open_ipc_memory(const Call& call, CUdeviceptr* address, const CUipcMemHandle& handle,
                         unsigned flags) {
    if (address == nullptr) return refuse_value(call, "the address's place is null");
    if (flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return refuse_value(call, "flags");
    HandleContent content;
    std::memcpy(&content, &handle, sizeof(content));
    if (content.magic != kMagic) return refuse_value(call, "the handle is none of this driver's");
    if (content.process != static_cast<std::uint64_t>(::getpid())) return CUDA_ERROR_NOT_SUPPORTED;
    auto& open = OpenHandles::instance().at;
    for (auto& [start, known] : open) {
        if (known.buffer_id == content.buffer_id && known.context == call.context->id) {
            ++known.uses;
            *address = start;
            return CUDA_SUCCESS;
        }
    }
    const Region* const original = find_allocation(content.buffer_id);
    if (original == nullptr) {
        return refuse("destroyed-handle",
                      fmt::format("{}: the allocation was freed", call.function),
                      CUDA_ERROR_INVALID_HANDLE);
    }
    std::uintptr_t start = 0;
    const CUresult mapped = map_again(call, *original, start);
    if (mapped != CUDA_SUCCESS) return mapped;
    open.emplace(start, OpenHandles::Open{content.buffer_id, call.context->id, 1});
    *address = start;
    return CUDA_SUCCESS;
}

}  // namespace frostline::emulator

using namespace frostline::emulator;

// Memory that was mapped with cuMemMap, or allocated in stream order, has no such handle.
FROSTLINE_EXPORTED CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (handle == nullptr) return refuse_value(call, "the handle's place is null");
        const Region* const region = driver().memory.region_at(address);
        if (region == nullptr || region->kind != RegionKind::allocation) {
            return refuse("not-exportable", fmt::format("{}: {:#x} is not memory of cuMemAlloc",
                                                        call.function, address));
        }
        const HandleContent content{kMagic, static_cast<std::uint64_t>(::getpid()),
                                    region->buffer_id};
        std::memset(handle, 0, sizeof(*handle));
        std::memcpy(handle, &content, sizeof(content));
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle,
                                                       unsigned flags) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::unsafe);
    return self.call([&](Call& call) { return open_ipc_memory(call, address, handle, flags); });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuIpcCloseMemHandle(CUdeviceptr address) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::unsafe);
    return self.call([&](Call& call) -> CUresult {
        auto& open = OpenHandles::instance().at;
        const auto known = open.find(address);
        if (known == open.end()) {
            return refuse("not-an-allocation",
                          fmt::format("{}: nothing was opened at {:#x}", call.function, address));
        }
        if (--known->second.uses > 0) return CUDA_SUCCESS;
        open.erase(known);
        const std::size_t bytes = driver().memory.regions.at(address).bytes;
        if (const auto work = work_touching(address, bytes)) {
            report_misuse("unmap-under-work",
                          fmt::format("{}: {} uses {:#x}", call.function, work->what, address));
            wait_untouched(call.lock, address, bytes);
        }
        remove_region(address);
        return CUDA_SUCCESS;
    });
}

// An event's order is this process's own.
FROSTLINE_EXPORTED CUresult CUDAAPI cuIpcGetEventHandle(CUipcEventHandle*, CUevent) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([](Call&) { return CUDA_ERROR_NOT_SUPPORTED; });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuIpcOpenEventHandle(CUevent*, CUipcEventHandle) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([](Call&) { return CUDA_ERROR_NOT_SUPPORTED; });
}
