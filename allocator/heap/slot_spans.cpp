// A span's free slots are bits; the lowest is taken first.
#include "allocator/heap/slot_spans.h"

#include "tiers/check.h"

#include <sys/mman.h>

#include <bit>
#include <cerrno>
#include <new>

namespace frostline {
namespace {

std::size_t lowest(const std::array<std::uint64_t, 2>& bits) noexcept {
    return static_cast<std::size_t>(bits[0] != 0 ? std::countr_zero(bits[0])
                                                 : 64 + std::countr_zero(bits[1]));
}

}  // namespace

SlotSpans::SlotSpans(const Options& options) noexcept
    : address_(options.address), size_bytes_(options.size_bytes), records_(*options.records) {}

Result<std::unique_ptr<SlotSpans>> SlotSpans::create(const Options& options) noexcept {
    std::unique_ptr<SlotSpans> space(new (std::nothrow) SlotSpans(options));
    if (space == nullptr || !space->admit(kNoStream)) {
        return Error(Errc::out_of_memory, 0, "making the space of a heap's small blocks");
    }
    const std::size_t size = options.size_bytes / kSpanBytes * sizeof(std::atomic<HeapSpan*>);
    void* const spans = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (spans == MAP_FAILED) {
        return Error(Errc::out_of_memory, errno, "reserving addresses for a heap's table of spans");
    }
    // Anonymous memory is zero, which is what a null pointer is here.
    space->spans_ = static_cast<std::atomic<HeapSpan*>*>(spans);
    return space;
}

SlotSpans::~SlotSpans() {
    for (const auto& of_tag : partial_) {
        for (Partial& spans : *of_tag) spans.clear();
    }
    if (spans_ == nullptr) return;
    const std::size_t size = size_bytes_ / kSpanBytes * sizeof(std::atomic<HeapSpan*>);
    FROSTLINE_CHECK(munmap(spans_, size) == 0, "giving back a heap's table of spans");
}

bool SlotSpans::admit(StreamTag tag) noexcept {
    try {
        while (partial_.size() <= tag) partial_.push_back(std::make_unique<PartialOfTag>());
        return true;
    } catch (const std::bad_alloc&) {
        return false;
    }
}

HeapSlot SlotSpans::take(std::size_t size_class, StreamTag tag) noexcept {
    Partial& partial = (*partial_[tag])[size_class];
    if (partial.empty()) return {};
    // The lowest span first, so that the higher ones run empty.
    HeapSpan& span = *partial.begin();
    return take(span, lowest(span.free_slots));
}

HeapSlot SlotSpans::take(HeapSpan& span, std::size_t slot) noexcept {
    span.free_slots[slot / 64] &= ~(std::uint64_t{1} << slot % 64);
    if (--span.free_count == 0) {
        Partial& partial = (*partial_[span.tag])[span.size_class];
        partial.erase(partial.iterator_to(span));
    }
    free_bytes_ -= span.slot_bytes();
    return {span.address + slot * span.slot_bytes(), &span.record(slot)};
}

bool SlotSpans::add(HeapBlock& block, std::size_t size_class, StreamTag tag) noexcept {
    void* const memory = records_.take(span_record_bytes(size_class));
    if (memory == nullptr) return false;
    auto* const span = new (memory) HeapSpan;
    span->block = &block;
    span->address = block.address;
    span->size_class = static_cast<std::uint8_t>(size_class);
    span->tag = tag;
    span->reciprocal = static_cast<std::uint32_t>(
        ((std::uint64_t{1} << 32) + span->slot_bytes() - 1) / span->slot_bytes());
    span->free_count = static_cast<std::uint8_t>(span->slots());
    for (std::size_t slot = 0; slot < span->slots(); ++slot) {
        span->free_slots[slot / 64] |= std::uint64_t{1} << slot % 64;
        AllocationRecord& record = span->record(slot);
        record.birth = 0;  // what it stood for lay elsewhere
        record.state.store(AllocationState::vacant, std::memory_order_relaxed);
    }
    free_bytes_ += span->slots() * span->slot_bytes();
    (*partial_[tag])[size_class].insert(*span);
    spans_[(span->address - address_) / kSpanBytes].store(span, std::memory_order_release);
    return true;
}

HeapBlock* SlotSpans::give(HeapSpan& span, std::size_t slot) noexcept {
    Partial& partial = (*partial_[span.tag])[span.size_class];
    if (span.free_count == 0) partial.insert(span);
    span.free_slots[slot / 64] |= std::uint64_t{1} << slot % 64;
    ++span.free_count;
    free_bytes_ += span.slot_bytes();
    if (span.free_count < span.slots()) return nullptr;
    partial.erase(partial.iterator_to(span));
    free_bytes_ -= span.slots() * span.slot_bytes();
    spans_[(span.address - address_) / kSpanBytes].store(nullptr, std::memory_order_release);
    HeapBlock* const block = span.block;
    records_.give(&span, span_record_bytes(span.size_class));
    return block;
}

}  // namespace frostline
