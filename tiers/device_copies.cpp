// One driver call for each piece of host memory.
#include "tiers/device_copies.h"

#include <algorithm>

namespace frostline {

Result<DeviceCopies::Reach> DeviceCopies::reach(const std::byte* address) const noexcept {
    HostRegistration::Piece piece{UINT64_MAX, false};
    if (registered_ != nullptr) piece = registered_->piece_from(address);
    if (piece.registered) return Reach{Memory::registered, piece.size_bytes};
    const CudaDriver& driver = context_->driver();
    unsigned type = 0;
    CUpointer_attribute asked = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    void* answer = &type;
    FROSTLINE_TRY_VOID(context_->run([&] {
        // Memory that the driver does not know is no error; its type is 0.
        return driver.check("cuPointerGetAttributes",
                            driver.cuPointerGetAttributes(1, &asked, &answer,
                                                          reinterpret_cast<CUdeviceptr>(address)));
    }));
    const bool on_device = type == CU_MEMORYTYPE_DEVICE;
    return Reach{on_device ? Memory::device : Memory::pageable, piece.size_bytes};
}

Result<void> DeviceCopies::start_read(CUdeviceptr from, std::span<std::byte> to,
                                      CUstream stream) const noexcept {
    const CudaDriver& driver = context_->driver();
    while (!to.empty()) {
        FROSTLINE_TRY(const Reach reach, this->reach(to.data()));
        const std::size_t size = std::min<std::uint64_t>(to.size(), reach.size_bytes);
        FROSTLINE_TRY_VOID(context_->run([&] {
            if (reach.memory == Memory::device) {
                return driver.check(
                    "cuMemcpyDtoDAsync",
                    driver.cuMemcpyDtoDAsync(reinterpret_cast<CUdeviceptr>(to.data()), from, size,
                                             stream));
            }
            return driver.check("cuMemcpyDtoHAsync",
                                driver.cuMemcpyDtoHAsync(to.data(), from, size, stream));
        }));
        to = to.subspan(size);
        from += size;
    }
    return ok();
}

Result<void> DeviceCopies::start_write(CUdeviceptr to, std::span<const std::byte> from,
                                       CUstream stream) const noexcept {
    const CudaDriver& driver = context_->driver();
    while (!from.empty()) {
        FROSTLINE_TRY(const Reach reach, this->reach(from.data()));
        const std::size_t size = std::min<std::uint64_t>(from.size(), reach.size_bytes);
        FROSTLINE_TRY_VOID(context_->run([&] {
            if (reach.memory == Memory::device) {
                return driver.check(
                    "cuMemcpyDtoDAsync",
                    driver.cuMemcpyDtoDAsync(to, reinterpret_cast<CUdeviceptr>(from.data()), size,
                                             stream));
            }
            return driver.check("cuMemcpyHtoDAsync",
                                driver.cuMemcpyHtoDAsync(to, from.data(), size, stream));
        }));
        from = from.subspan(size);
        to += size;
    }
    return ok();
}

}  // namespace frostline
