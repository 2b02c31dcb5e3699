// A bump pointer, and a list of vacant records for each size.
#include "allocator/heap/record_arena.h"

#include "tiers/check.h"

#include <sys/mman.h>

#include <cerrno>
#include <new>

namespace frostline {
namespace {

// What the 28-bit numbers of an AddressIndex can name. A process with a limit on its address space
// gets less.
constexpr std::size_t kMostBytes = std::size_t{16} << 30;
constexpr std::size_t kLeastBytes = std::size_t{16} << 20;
constexpr std::size_t kRecordsInALot = 512;

std::size_t units(std::size_t size_bytes) noexcept {
    return (size_bytes + RecordArena::kRecordBytes - 1) / RecordArena::kRecordBytes;
}

}  // namespace

RecordArena::RecordArena(std::byte* base, std::size_t size_bytes) noexcept
    : base_(base), size_bytes_(size_bytes) {}

Result<std::unique_ptr<RecordArena>> RecordArena::create() noexcept {
    int refused = 0;
    for (std::size_t size = kMostBytes; size >= kLeastBytes; size /= 2) {
        void* const base =
            mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base == MAP_FAILED) {
            refused = errno;
            continue;
        }
        std::unique_ptr<RecordArena> arena(new (std::nothrow)
                                               RecordArena(static_cast<std::byte*>(base), size));
        if (arena != nullptr) return arena;
        munmap(base, size);
        break;
    }
    return Error(Errc::out_of_memory, refused, "reserving addresses for the records of a heap");
}

RecordArena::~RecordArena() {
    FROSTLINE_CHECK(munmap(base_, size_bytes_) == 0, "giving back the records of a heap");
}

void* RecordArena::take(std::size_t size_bytes) noexcept {
    const std::size_t index = units(size_bytes);
    if (Vacant* const vacant = vacant_[index]; vacant != nullptr) {
        vacant_[index] = vacant->next;
        return vacant;
    }
    if (index == 1) return take_scattered();
    return take_next(index * kRecordBytes);
}

void* RecordArena::take_next(std::size_t size_bytes) noexcept {
    if (!open_up_to(next_ + size_bytes)) return nullptr;
    void* const record = base_ + next_;
    next_ += size_bytes;
    return record;
}

// Processors fetch the lines beside and ahead of those that are read in order. Two threads whose
// records took turns would so take each other's away, which costs more than all the rest of an
// allocation: hence a linear congruential order (full period: the multiplier is 1 modulo 4, the
// increment odd).
void* RecordArena::take_scattered() noexcept {
    if (lot_left_ == 0) {
        lot_ = static_cast<std::byte*>(take_next(kRecordsInALot * kRecordBytes));
        if (lot_ == nullptr) return nullptr;
        lot_left_ = kRecordsInALot;
    }
    --lot_left_;
    place_ = (place_ * 109 + 233) % kRecordsInALot;
    return lot_ + place_ * kRecordBytes;
}

// Refused is what lies beyond the reserved addresses, and what the system has no memory for now.
bool RecordArena::open_up_to(std::size_t end) noexcept {
    if (end <= open_bytes_) return true;
    if (end > size_bytes_) return false;
    // One step is enough: the size is whole steps, and nothing larger is taken at once.
    static_assert(kLeastBytes % kStepBytes == 0 && kLargestRecord <= kStepBytes &&
                  kRecordsInALot * kRecordBytes <= kStepBytes);
    if (mprotect(base_ + open_bytes_, kStepBytes, PROT_READ | PROT_WRITE) != 0) return false;
    open_bytes_ += kStepBytes;
    return true;
}

void RecordArena::give(void* record, std::size_t size_bytes) noexcept {
    Vacant*& first = vacant_[units(size_bytes)];
    first = new (record) Vacant{first};
}

}  // namespace frostline
