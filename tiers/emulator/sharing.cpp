// Physical memory as a file descriptor that another process can map. Only what was created for it
// can be exported, because only that lies in a file of its own.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tiers/emulator/exported.h"

namespace frostline::emulator {
namespace {

std::shared_ptr<PhysicalMemory> find_by_file(const struct stat& file) {
    for (const auto& [handle, physical] : driver().physical.all()) {
        struct stat own {};
        if (!physical->own_file || ::fstat(physical->file, &own) != 0) continue;
        if (own.st_dev == file.st_dev && own.st_ino == file.st_ino) return physical;
    }
    return nullptr;
}

// What an exporter in another process knows of its memory is not in the file; so the memory is
// taken to lie on the importer's current device.
std::shared_ptr<PhysicalMemory> adopt(int file, std::size_t bytes, int device) {
    auto physical = std::make_shared<PhysicalMemory>();
    physical->file = ::fcntl(file, F_DUPFD_CLOEXEC, 0);
    if (physical->file < 0) return nullptr;
    physical->own_file = true;
    physical->bytes = bytes;
    physical->properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    physical->properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    physical->properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    physical->properties.location.id = device;
    physical->handle = driver().physical.add(physical);
    return physical;
}

}  // namespace
}  // namespace frostline::emulator

using namespace frostline::emulator;

FROSTLINE_EXPORTED CUresult CUDAAPI
cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle,
                             CUmemAllocationHandleType type, unsigned long long flags) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (shareable == nullptr || flags != 0) return refuse_value(call, "an argument");
        const auto physical = driver().physical.find(handle);
        if (physical == nullptr || physical->handle_uses == 0) {
            return refuse(driver().physical.state(handle) == HandleState::unknown
                              ? "bad-handle"
                              : "destroyed-handle",
                          fmt::format("{}: {:#x}", call.function, handle));
        }
        if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
        if ((physical->properties.requestedHandleTypes & type) == 0) {
            return refuse("not-exportable", fmt::format("{}: {:#x} was created without a type of "
                                                        "handle to export",
                                                        call.function, handle));
        }
        const int file = ::fcntl(physical->file, F_DUPFD_CLOEXEC, 0);
        if (file < 0) return CUDA_ERROR_OPERATING_SYSTEM;
        *static_cast<int*>(shareable) = file;
        return CUDA_SUCCESS;
    });
}

// The descriptor stays the caller's. In the process that exported it, the handle is the same one.
FROSTLINE_EXPORTED CUresult CUDAAPI cuMemImportFromShareableHandle(
    CUmemGenericAllocationHandle* handle, void* shareable, CUmemAllocationHandleType type) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::unsafe);
    return self.call([&](Call& call) -> CUresult {
        if (handle == nullptr) return refuse_value(call, "the handle's place is null");
        if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
        const int file = static_cast<int>(reinterpret_cast<std::intptr_t>(shareable));
        struct stat found {};
        if (::fstat(file, &found) != 0 || !S_ISREG(found.st_mode)) {
            return refuse_value(call, "the descriptor is none of exported memory");
        }
        auto physical = find_by_file(found);
        if (physical == nullptr) {
            const auto bytes = static_cast<std::size_t>(found.st_size);
            if (bytes == 0 || bytes % driver().settings.granularity_bytes != 0) {
                return refuse_value(call, "the descriptor is none of exported memory");
            }
            physical = adopt(file, bytes, call.context == nullptr ? 0 : call.context->device);
        }
        if (physical == nullptr) return CUDA_ERROR_OPERATING_SYSTEM;
        ++physical->handle_uses;
        *handle = physical->handle;
        return CUDA_SUCCESS;
    });
}
