// Which copies a GPU makes by itself, and how they are started. Its copy engines reach its own
// memory, that of its peers, and host memory that is registered; a single copy must not cross from
// one registered piece into the next.
#pragma once

#include "tiers/cuda_stream.h"
#include "tiers/host_registration.h"
#include "tiers/result.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace frostline {

/// Thread-safe.
class DeviceCopies {
   public:
    /// `registered`: which host memory a GPU reaches by itself, or nullptr: none. Outlives this.
    DeviceCopies(std::shared_ptr<const CudaContext> context, const HostRegistration* registered)
        : context_(std::move(context)), registered_(registered) {}

    const std::shared_ptr<const CudaContext>& context() const noexcept { return context_; }

    enum class Memory : std::uint8_t {
        pageable,    ///< the driver stages it; a copy from or to it may wait
        registered,  ///< host memory that a GPU reaches
        device,
    };
    struct Reach {
        Memory memory{};
        std::uint64_t size_bytes = 0;  ///< from the address on, at least that much is the same
    };
    /// What lies at an address. Errors: the driver's; it could be anything then.
    Result<Reach> reach(const std::byte* address) const noexcept;

    /// Starts copying device memory to `to`, or there from `from`. Either may cross pieces.
    /// Errors: the driver's; what was started until then goes on.
    Result<void> start_read(CUdeviceptr from, std::span<std::byte> to,
                            CUstream stream) const noexcept;
    Result<void> start_write(CUdeviceptr to, std::span<const std::byte> from,
                             CUstream stream) const noexcept;

   private:
    /// Calls `copy` for each part of the memory that one copy can take, with its place, its size,
    /// and whether it is a device's.
    template <class Copy>
    Result<void> in_pieces(std::span<const std::byte> memory, const Copy& copy) const;

    std::shared_ptr<const CudaContext> context_;
    const HostRegistration* registered_;
};

}  // namespace frostline
