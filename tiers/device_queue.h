// Copies in flight between one device and host memory, on a stream of their own: in order, so that
// the oldest always ends first. A staging buffer is used again only after the event that follows
// its copy.
#pragma once

#include "tiers/cuda_stream.h"
#include "tiers/device_copies.h"
#include "tiers/pinned_staging.h"
#include "tiers/tier.h"

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace frostline {

class DeviceQueue final : public TransferQueue {
   public:
    static constexpr std::size_t kDepth = 32;
    /// Of one copy in place, so that a more urgent one need not wait for long.
    static constexpr std::uint64_t kPieceBytes = std::uint64_t{4} << 20;
    /// Of one staging buffer.
    static constexpr std::uint64_t kStagingBytes = std::uint64_t{1} << 20;

    /// Extents lie at `addresses` plus their offsets. `copies` and `staging` outlive the queue.
    /// Errors: out_of_memory, the driver's.
    static Result<std::unique_ptr<TransferQueue>> create(const DeviceCopies& copies,
                                                         PinnedStaging& staging,
                                                         CUdeviceptr addresses) noexcept;
    /// Nothing may be in flight.
    ~DeviceQueue() override;

    std::size_t depth() const noexcept override { return kDepth; }
    TransferPiece next_piece(const Extent& extent, std::uint64_t offset,
                             const std::byte* memory) const noexcept override;
    Result<std::span<std::byte>> staging(std::size_t slot) noexcept override;
    void push(const Transfer& transfer) noexcept override;
    TransferEnd wait() noexcept override;

   private:
    struct InFlight {
        explicit InFlight(CudaEvent made) : event(std::move(made)) {}
        CudaEvent event;
        std::uint64_t tag = 0;
        Result<void> started = ok();
    };

    static constexpr std::size_t kBuffersPerPage = kHugePageBytes / kStagingBytes;

    DeviceQueue(const DeviceCopies& copies, PinnedStaging& staging, CUdeviceptr addresses,
                CudaStream stream, std::vector<InFlight> slots);
    Result<void> start(const Transfer& transfer, const CudaEvent& event) noexcept;

    const DeviceCopies& copies_;
    PinnedStaging& staging_;
    const CUdeviceptr addresses_;
    CudaStream stream_;
    std::vector<InFlight> slots_;  // a ring of kDepth
    std::size_t oldest_ = 0;
    std::size_t in_flight_ = 0;
    std::array<PinnedStaging::Page, kDepth / kBuffersPerPage> pages_{};  // empty: not made yet
};

}  // namespace frostline
