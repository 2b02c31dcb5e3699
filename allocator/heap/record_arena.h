// Memory for what a heap knows of its blocks. It lies in one address range apart from the memory
// that is handed out, is given back to the system only when the arena ends, and never moves: a
// stale pointer reads an old record, not somebody else's memory, and 32 bits name a record.
//
// Rule: addresses are reserved without access, and opened from the start up, a step at a time.
// Where the system commits no more than it has (vm.overcommit_memory=2), whatever can be written is
// charged: so a heap is charged for the records that it has, and not for those that it might.
#pragma once

#include "tiers/result.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace frostline {

/// Not thread-safe, but for number_of() and at(): the heap that owns it holds its lock.
class RecordArena {
   public:
    /// Records are multiples of this, and aligned to it: two cache lines, because processors fetch
    /// them in pairs.
    static constexpr std::size_t kRecordBytes = 128;
    static constexpr std::size_t kLargestRecord = 32 * kRecordBytes;

    /// Memory that can be written grows by so much.
    static constexpr std::size_t kStepBytes = std::size_t{1} << 20;

    /// Reserves addresses only; memory comes as records are taken. Errors: out_of_memory.
    static Result<std::unique_ptr<RecordArena>> create() noexcept;
    RecordArena(const RecordArena&) = delete;
    RecordArena& operator=(const RecordArena&) = delete;
    ~RecordArena();

    /// Memory for a record of up to kLargestRecord bytes, all zero when it is taken for the first
    /// time and as it was left otherwise; null when there is none.
    void* take(std::size_t size_bytes) noexcept;
    /// Takes back what take(size_bytes) gave.
    void give(void* record, std::size_t size_bytes) noexcept;

    /// Names anything within a record by its distance from the start, in units of 8 bytes.
    std::uint32_t number_of(const void* inside) const noexcept {
        return static_cast<std::uint32_t>((static_cast<const std::byte*>(inside) - base_) / 8);
    }
    void* at(std::uint32_t number) const noexcept { return base_ + std::size_t{number} * 8; }

    /// Bytes that were taken at any time: what the system has had to provide.
    std::size_t touched_bytes() const noexcept { return next_; }

   private:
    struct Vacant {
        Vacant* next;
    };
    RecordArena(std::byte* base, std::size_t size_bytes) noexcept;
    void* take_next(std::size_t size_bytes) noexcept;
    void* take_scattered() noexcept;
    bool open_up_to(std::size_t end) noexcept;

    std::byte* const base_;
    const std::size_t size_bytes_;
    std::size_t next_ = 0;
    std::byte* lot_ = nullptr;  // the smallest records come from it
    std::size_t lot_left_ = 0;
    std::size_t place_ = 0;
    std::size_t open_bytes_ = 0;  // can be written; no less than next_
    std::array<Vacant*, kLargestRecord / kRecordBytes + 1> vacant_{};  // by size in kRecordBytes
};

}  // namespace frostline
