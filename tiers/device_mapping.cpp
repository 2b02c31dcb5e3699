// One call of the driver for each handle, and one for the access of all of them.
#include "tiers/device_mapping.h"

namespace frostline {
namespace {

std::uint64_t total_bytes(std::span<const DeviceChunk> chunks) noexcept {
    std::uint64_t bytes = 0;
    for (const DeviceChunk& chunk : chunks) bytes += chunk.size_bytes;
    return bytes;
}

}  // namespace

Result<void> map_chunks(const CudaContext& context, CUdeviceptr address,
                        std::span<const DeviceChunk> chunks,
                        std::span<const CUmemAccessDesc> access) noexcept {
    const CudaDriver& driver = context.driver();
    return context.run([&]() -> Result<void> {
        std::uint64_t mapped_bytes = 0;
        Result<void> status = ok();
        for (const DeviceChunk& chunk : chunks) {
            status = driver.check(
                "cuMemMap",
                driver.cuMemMap(address + mapped_bytes, chunk.size_bytes, 0, chunk.handle, 0));
            if (!status) break;
            mapped_bytes += chunk.size_bytes;
        }
        if (status) {
            status = driver.check(
                "cuMemSetAccess",
                driver.cuMemSetAccess(address, total_bytes(chunks), access.data(), access.size()));
        }
        if (!status && mapped_bytes > 0) (void)driver.cuMemUnmap(address, mapped_bytes);
        return status;
    });
}

Result<void> unmap_chunks(const CudaContext& context, CUdeviceptr address,
                          std::uint64_t size_bytes) noexcept {
    const CudaDriver& driver = context.driver();
    return context.run(
        [&] { return driver.check("cuMemUnmap", driver.cuMemUnmap(address, size_bytes)); });
}

Result<void> check_peers(const CudaContext& context, std::span<const int> peers) noexcept {
    const CudaDriver& driver = context.driver();
    int count = 0;
    if (!peers.empty()) {
        FROSTLINE_TRY_VOID(driver.check("cuDeviceGetCount", driver.cuDeviceGetCount(&count)));
    }
    for (const int peer : peers) {
        CUdevice handle = 0;
        int can = 0;
        if (peer < 0 || peer >= count) {
            return Error(Errc::invalid_argument, 0,
                         "peers: there is no GPU {}: the driver has {}, counted from 0", peer,
                         count);
        }
        FROSTLINE_TRY_VOID(driver.check("cuDeviceGet", driver.cuDeviceGet(&handle, peer)));
        FROSTLINE_TRY_VOID(driver.check(
            "cuDeviceCanAccessPeer", driver.cuDeviceCanAccessPeer(&can, handle, context.handle())));
        if (can == 0) {
            return Error(Errc::invalid_argument, 0,
                         "peers: GPU {} cannot reach the memory of GPU {}: leave it out", peer,
                         context.device());
        }
    }
    return ok();
}

std::vector<CUmemAccessDesc> access_for(std::span<const int> devices) {
    std::vector<CUmemAccessDesc> access;
    access.reserve(devices.size());
    for (const int device : devices) {
        CUmemAccessDesc each{};
        each.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        each.location.id = device;
        each.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        access.push_back(each);
    }
    return access;
}

}  // namespace frostline
