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

template <class Copy>
Result<void> DeviceCopies::in_pieces(std::span<const std::byte> memory, const Copy& copy) const {
    for (std::size_t done = 0; done < memory.size();) {
        FROSTLINE_TRY(const Reach reach, this->reach(memory.data() + done));
        const auto size = std::min<std::uint64_t>(memory.size() - done, reach.size_bytes);
        FROSTLINE_TRY_VOID(
            context_->run([&] { return copy(done, size, reach.memory == Memory::device); }));
        done += size;
    }
    return ok();
}

Result<void> DeviceCopies::start_read(CUdeviceptr from, std::span<std::byte> to,
                                      CUstream stream) const noexcept {
    const CudaDriver& driver = context_->driver();
    return in_pieces(to, [&](std::size_t done, std::size_t size, bool within_devices) {
        std::byte* const target = to.data() + done;
        if (within_devices) {
            return driver.check("cuMemcpyDtoDAsync",
                                driver.cuMemcpyDtoDAsync(reinterpret_cast<CUdeviceptr>(target),
                                                         from + done, size, stream));
        }
        return driver.check("cuMemcpyDtoHAsync",
                            driver.cuMemcpyDtoHAsync(target, from + done, size, stream));
    });
}

Result<void> DeviceCopies::start_write(CUdeviceptr to, std::span<const std::byte> from,
                                       CUstream stream) const noexcept {
    const CudaDriver& driver = context_->driver();
    return in_pieces(from, [&](std::size_t done, std::size_t size, bool within_devices) {
        const std::byte* const source = from.data() + done;
        if (within_devices) {
            return driver.check(
                "cuMemcpyDtoDAsync",
                driver.cuMemcpyDtoDAsync(to + done, reinterpret_cast<CUdeviceptr>(source), size,
                                         stream));
        }
        return driver.check("cuMemcpyHtoDAsync",
                            driver.cuMemcpyHtoDAsync(to + done, source, size, stream));
    });
}

}  // namespace frostline
