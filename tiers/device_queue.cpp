// A ring of events, each recorded after its copy.
#include "tiers/device_queue.h"

#include "tiers/check.h"

#include <algorithm>
#include <new>
#include <utility>

namespace frostline {

Result<std::unique_ptr<TransferQueue>> DeviceQueue::create(const DeviceCopies& copies,
                                                           CUdeviceptr addresses) noexcept {
    try {
        FROSTLINE_TRY(CudaStream stream, CudaStream::create(copies.context()));
        std::vector<InFlight> slots;
        slots.reserve(kDepth);
        for (std::size_t i = 0; i < kDepth; ++i) {
            FROSTLINE_TRY(CudaEvent event, CudaEvent::create(copies.context()));
            slots.emplace_back(std::move(event));
        }
        return std::unique_ptr<TransferQueue>(
            new DeviceQueue(copies, addresses, std::move(stream), std::move(slots)));
    } catch (const std::bad_alloc&) {
        return Error(Errc::out_of_memory, 0, "no memory for copies of GPU {}",
                     copies.context()->device());
    }
}

DeviceQueue::DeviceQueue(const DeviceCopies& copies, CUdeviceptr addresses, CudaStream stream,
                         std::vector<InFlight> slots)
    : copies_(copies),
      addresses_(addresses),
      stream_(std::move(stream)),
      slots_(std::move(slots)),
      staging_({.context = copies.context(), .buffers = kDepth, .buffer_bytes = kStagingBytes}) {}

DeviceQueue::~DeviceQueue() {
    FROSTLINE_CHECK(in_flight_ == 0, "a queue of device copies ends with copies in flight");
}

TransferPiece DeviceQueue::next_piece(const Extent& extent, std::uint64_t offset,
                                      const std::byte* memory) const noexcept {
    const std::uint64_t rest = extent.length_bytes - offset;
    if (memory != nullptr) {
        const auto reach = copies_.reach(memory);
        // What starts the transfer asks again, and reports the error.
        if (!reach) return {std::min(rest, kPieceBytes), true};
        if (reach->memory != DeviceCopies::Memory::pageable) {
            return {std::min({rest, reach->size_bytes, kPieceBytes}), true};
        }
        return {std::min({rest, reach->size_bytes, kStagingBytes}), false};
    }
    return {std::min(rest, kStagingBytes), false};
}

void DeviceQueue::push(const Transfer& transfer) noexcept {
    FROSTLINE_CHECK(in_flight_ < kDepth, "too many copies in flight");
    InFlight& slot = slots_[(oldest_ + in_flight_++) % kDepth];
    slot.tag = transfer.tag;
    slot.started = start(transfer, slot.event);
}

Result<void> DeviceQueue::start(const Transfer& transfer, const CudaEvent& event) noexcept {
    const CUdeviceptr address = addresses_ + transfer.extent.offset + transfer.offset;
    Result<void> started = transfer.direction == Transfer::Direction::read
                               ? copies_.start_read(address, transfer.bytes, stream_.handle())
                               : copies_.start_write(address, transfer.bytes, stream_.handle());
    if (started) started = event.record(stream_.handle());
    // Whatever did start must not outlive the transfer.
    if (!started) (void)stream_.synchronize();
    return started;
}

TransferEnd DeviceQueue::wait() noexcept {
    FROSTLINE_CHECK(in_flight_ > 0, "no copy is in flight");
    InFlight& slot = slots_[oldest_];
    oldest_ = (oldest_ + 1) % kDepth;
    --in_flight_;
    Result<void> status = std::exchange(slot.started, ok());
    if (status) status = slot.event.synchronize();
    return {slot.tag, status};
}

}  // namespace frostline
