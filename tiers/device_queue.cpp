// A ring of events, each recorded after its copy.
#include "tiers/device_queue.h"

#include "tiers/check.h"

#include <algorithm>
#include <new>
#include <utility>

namespace frostline {

Result<std::unique_ptr<TransferQueue>> DeviceQueue::create(const DeviceCopies& copies,
                                                           PinnedStaging& staging,
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
            new DeviceQueue(copies, staging, addresses, std::move(stream), std::move(slots)));
    } catch (const std::bad_alloc&) {
        return Error(Errc::out_of_memory, 0, "no memory for copies of GPU {}",
                     copies.context()->device());
    }
}

DeviceQueue::DeviceQueue(const DeviceCopies& copies, PinnedStaging& staging, CUdeviceptr addresses,
                         CudaStream stream, std::vector<InFlight> slots)
    : copies_(copies),
      staging_(staging),
      addresses_(addresses),
      stream_(std::move(stream)),
      slots_(std::move(slots)) {}

DeviceQueue::~DeviceQueue() {
    FROSTLINE_CHECK(in_flight_ == 0, "a queue of device copies ends with copies in flight");
    for (PinnedStaging::Page& page : pages_) {
        if (!page.bytes.empty()) staging_.give(std::move(page));
    }
}

TransferPiece DeviceQueue::next_piece(const Extent& extent, std::uint64_t offset,
                                      const std::byte* memory) const noexcept {
    const std::uint64_t rest = extent.length_bytes - offset;
    DeviceCopies::Reach reach{DeviceCopies::Memory::pageable, rest};
    if (memory != nullptr) {
        const auto told = copies_.reach(memory);
        // It may be a device's, which the CPU must not touch; what starts the transfer asks again.
        reach = told ? *told : DeviceCopies::Reach{DeviceCopies::Memory::device, rest};
    }
    const bool in_place = reach.memory != DeviceCopies::Memory::pageable;
    const std::uint64_t most = in_place ? kPieceBytes : kStagingBytes;
    return {std::min({rest, reach.size_bytes, most}), in_place};
}

Result<std::span<std::byte>> DeviceQueue::staging(std::size_t slot) noexcept {
    PinnedStaging::Page& page = pages_.at(slot / kBuffersPerPage);
    if (page.bytes.empty()) {
        FROSTLINE_TRY(page, staging_.take());
    }
    return page.bytes.subspan(slot % kBuffersPerPage * kStagingBytes, kStagingBytes);
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
    Result<void> status = slot.started;
    if (status) status = slot.event.synchronize();
    return {slot.tag, status};
}

}  // namespace frostline
