// Slots in chunks that never move, and the two orders.
#include "allocator/tensor_table.h"

#include <new>

namespace frostline {

TensorTable::~TensorTable() {
    by_birth_.clear();
    by_use_.clear();
}

Result<TensorRecord*> TensorTable::create(std::uint64_t size_bytes,
                                          const TensorCopy& copy) noexcept {
    FROSTLINE_TRY(const std::uint32_t index, free_slot());
    TensorRecord& record = *slot(index);
    record.size_bytes = size_bytes;
    record.held_pins = 0;
    record.copies.fill(std::nullopt);
    record.copies[index_of(copy.extent.tier)] = copy;
    // Generation 0 names no tensor, so it is skipped when the counter wraps.
    const std::uint32_t last = record.residency.load().generation;
    record.residency.reset(copy.extent.tier, last + 1 == 0 ? 1 : last + 1);
    by_birth_.push_back(record);
    touch(record);
    return &record;
}

void TensorTable::erase(TensorRecord& record) noexcept {
    by_birth_.erase(by_birth_.iterator_to(record));
    if (record.UseHook::is_linked()) by_use_.erase(by_use_.iterator_to(record));
    free_slots_.push_back(record.slot);  // never allocates: free_slot() reserved the room
}

void TensorTable::touch(TensorRecord& record) noexcept {
    if (record.UseHook::is_linked()) by_use_.erase(by_use_.iterator_to(record));
    if (record.residency.load().home == TierId{0}) by_use_.push_back(record);
}

TensorRecord* TensorTable::find(TensorId id) const noexcept {
    TensorRecord* const record = slot(id.slot);
    if (record == nullptr || !id.valid()) return nullptr;
    const ResidencyState state = record->residency.load();
    return state.released || state.generation != id.generation ? nullptr : record;
}

TensorRecord* TensorTable::slot(std::uint32_t index) const noexcept {
    const std::size_t chunk = index / kChunk;
    return chunk < chunks_.size() ? &chunks_[chunk][index % kChunk] : nullptr;
}

Result<std::uint32_t> TensorTable::free_slot() noexcept {
    if (free_slots_.empty()) {
        if (chunks_.size() == kMaxChunks) {
            return Error(Errc::out_of_memory, 0, "tensor table: all {} slots are in use",
                         kChunk * kMaxChunks);
        }
        try {
            const auto first = static_cast<std::uint32_t>(chunks_.size() * kChunk);
            free_slots_.reserve(first + kChunk);
            chunks_.push_back(std::make_unique<TensorRecord[]>(kChunk));
            for (std::size_t i = kChunk; i-- > 0;) {
                chunks_.back()[i].slot = first + static_cast<std::uint32_t>(i);
                free_slots_.push_back(chunks_.back()[i].slot);
            }
        } catch (const std::bad_alloc&) {
            return Error(Errc::out_of_memory, 0, "tensor table: no memory for more tensors");
        }
    }
    const std::uint32_t index = free_slots_.back();
    free_slots_.pop_back();
    return index;
}

}  // namespace frostline
