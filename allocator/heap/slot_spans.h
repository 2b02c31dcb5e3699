// Small blocks: spans of 64 KiB, each of which holds slots of one size for one stream. The spans
// are blocks of a HeapSpace that the heap keeps for them and for blocks of middling size.
#pragma once

#include "allocator/heap/heap_block.h"
#include "allocator/heap/record_arena.h"
#include "allocator/heap/size_classes.h"

#include <boost/intrusive/set.hpp>

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace frostline {

/// The slots of one span; lies in a RecordArena, followed by the records of its slots.
struct HeapSpan
    : boost::intrusive::set_base_hook<boost::intrusive::link_mode<boost::intrusive::normal_link>,
                                      boost::intrusive::optimize_size<true>> {
    HeapBlock* block = nullptr;  ///< what it occupies
    std::uint64_t address = 0;
    std::array<std::uint64_t, 2> free_slots{};  ///< bit i: slot i is in nobody's hands
    std::uint32_t reciprocal = 0;               ///< 2^32 over the slot's size, rounded up
    StreamTag tag = kNoStream;
    std::uint8_t free_count = 0;
    std::uint8_t size_class = 0;

    std::uint64_t slot_bytes() const noexcept { return class_bytes(size_class); }
    std::uint16_t slots() const noexcept { return kSlotsOfClass[size_class]; }
    AllocationRecord& record(std::size_t slot) noexcept {
        return reinterpret_cast<AllocationRecord*>(this + 1)[slot];
    }
    /// The slot that starts at `start`; nothing when none does.
    std::optional<std::size_t> slot_at(std::uint64_t start) noexcept {
        const std::uint64_t offset = start - address;
        const std::size_t slot = (offset * reciprocal) >> 32;
        if (slot >= slots() || slot * slot_bytes() != offset) return std::nullopt;
        return slot;
    }
};
static_assert(sizeof(HeapSpan) == 64, "a lookup reads one cache line of it");

/// A slot that is in the hands of whoever took it.
struct HeapSlot {
    std::uint64_t address = 0;
    AllocationRecord* record = nullptr;
};

/// Not thread-safe, but for span_at(): the heap holds its lock.
class SlotSpans {
   public:
    struct Options {
        std::uint64_t address = 0;  ///< of all spans; a multiple of kSpanBytes, as is the size
        std::uint64_t size_bytes = 0;
        RecordArena* records = nullptr;  ///< outlives the space
    };

    /// Without spans. Errors: out_of_memory.
    static Result<std::unique_ptr<SlotSpans>> create(const Options& options) noexcept;
    SlotSpans(const SlotSpans&) = delete;
    SlotSpans& operator=(const SlotSpans&) = delete;
    ~SlotSpans();

    /// The span around an address; null where there is none. Anyone may call it for an address
    /// whose block lives.
    HeapSpan* span_at(std::uint64_t address) const noexcept {
        const std::uint64_t offset = address - address_;
        if (offset >= size_bytes_) return nullptr;
        return spans_[offset / kSpanBytes].load(std::memory_order_acquire);
    }

    /// Makes room for the spans of `tag`, which is to be used from now on. False: no memory.
    bool admit(StreamTag tag) noexcept;

    /// A slot of the class for `tag`, from the lowest span that has one; its record is null when
    /// none has. O(log n).
    HeapSlot take(std::size_t size_class, StreamTag tag) noexcept;
    /// Offers the span's free slots, from the highest down, until `keep` says that it did not take
    /// one over.
    template <class Keep>
    void take_rest(HeapSpan& span, Keep&& keep) {
        while (span.free_count > 0) {
            const std::size_t slot = highest(span.free_slots);
            if (!keep(HeapSlot{span.address + slot * span.slot_bytes(), &span.record(slot)})) break;
            (void)take(span, slot);
        }
    }
    /// Makes a span of a block of kSpanBytes that starts at a multiple of that. False: no record.
    bool add(HeapBlock& block, std::size_t size_class, StreamTag tag) noexcept;
    /// A slot returns. If its span is empty now, the span is no more, and the block is the
    /// caller's.
    HeapBlock* give(HeapSpan& span, std::size_t slot) noexcept;

    /// Bytes of free slots.
    std::uint64_t free_bytes() const noexcept { return free_bytes_; }

    /// Visits the slots of a span's block that are in somebody's hands, by their addresses.
    template <class Visit>
    static void for_each_slot(HeapSpan& span, Visit&& visit) {
        for (std::size_t slot = 0; slot < span.slots(); ++slot) {
            if ((span.free_slots[slot / 64] >> slot % 64 & 1) != 0) continue;
            visit(span.address + slot * span.slot_bytes(), span.record(slot));
        }
    }

   private:
    struct ByAddress {
        bool operator()(const HeapSpan& a, const HeapSpan& b) const noexcept {
            return a.address < b.address;
        }
    };
    using Partial = boost::intrusive::set<HeapSpan, boost::intrusive::compare<ByAddress>,
                                          boost::intrusive::constant_time_size<false>>;
    using PartialOfTag = std::array<Partial, kSizeClasses>;

    explicit SlotSpans(const Options& options) noexcept;
    static std::size_t highest(const std::array<std::uint64_t, 2>& bits) noexcept {
        return static_cast<std::size_t>(bits[1] != 0 ? 127 - std::countl_zero(bits[1])
                                                     : 63 - std::countl_zero(bits[0]));
    }
    HeapSlot take(HeapSpan& span, std::size_t slot) noexcept;
    static std::size_t span_record_bytes(std::size_t size_class) noexcept {
        return sizeof(HeapSpan) + kSlotsOfClass[size_class] * sizeof(AllocationRecord);
    }

    const std::uint64_t address_;
    const std::uint64_t size_bytes_;
    RecordArena& records_;
    std::atomic<HeapSpan*>* spans_ = nullptr;  // by 64 KiB; pages come as they are touched
    std::vector<std::unique_ptr<PartialOfTag>> partial_;  // by tag: spans with free slots
    std::uint64_t free_bytes_ = 0;
};

}  // namespace frostline
