// Slots and their way through the queue.
#include "tiers/transfer_pump.h"

#include <numeric>

namespace frostline {

TransferPump::TransferPump(TransferQueue& queue)
    : queue_(queue), slots_(queue.depth()), free_(queue.depth()) {
    std::iota(free_.begin(), free_.end(), std::size_t{0});
}

Result<TransferPump::Slot*> TransferPump::open(const Extent& extent, std::uint64_t offset,
                                               std::byte* memory) noexcept {
    const TransferPiece piece = queue_.next_piece(extent, offset, memory);
    const std::size_t index = free_.back();
    Slot& slot = slots_[index];
    slot = {extent, offset, {}, piece.in_place, nullptr};
    if (piece.in_place) {
        slot.bytes = {memory, piece.size_bytes};
    } else {
        FROSTLINE_TRY(const auto staging, queue_.staging(index));
        slot.bytes = staging.first(piece.size_bytes);
    }
    free_.pop_back();
    return &slot;
}

void TransferPump::launch(Slot& slot, Transfer::Direction direction) noexcept {
    queue_.push({direction, slot.extent, slot.offset, slot.bytes,
                 static_cast<std::uint64_t>(&slot - slots_.data())});
}

void TransferPump::abandon(Slot& slot) noexcept {
    free_.push_back(static_cast<std::size_t>(&slot - slots_.data()));  // it was taken from there
}

TransferPump::End TransferPump::wait() noexcept {
    const TransferEnd end = queue_.wait();
    Slot& slot = slots_[end.tag];
    abandon(slot);
    return {slot, end.status};
}

}  // namespace frostline
