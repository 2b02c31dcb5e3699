// Keeps a queue of transfers filled: which slots are free, where the bytes of each transfer lie,
// and whose they are.
#pragma once

#include "tiers/tier.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace frostline {

/// For one thread at a time, as the queue, which outlives it.
class TransferPump {
   public:
    /// A transfer from open() until its end was told.
    struct Slot {
        Extent extent;
        std::uint64_t offset = 0;
        std::span<std::byte> bytes;  ///< in place, or in staging
        bool in_place = false;
        void* owner = nullptr;  ///< the caller's own
    };
    struct End {
        Slot slot;
        Result<void> status = ok();
    };

    /// May throw std::bad_alloc.
    explicit TransferPump(TransferQueue& queue);

    bool full() const noexcept { return free_.empty(); }
    bool idle() const noexcept { return free_.size() == slots_.size(); }

    /// Prepares the next piece of an extent from `offset` on; full() must be false. `memory` is
    /// where the rest of the extent lies or goes in host memory, or nullptr. The bytes of a write
    /// must be at the slot's before launch(). Errors: out_of_memory.
    Result<Slot*> open(const Extent& extent, std::uint64_t offset, std::byte* memory) noexcept;
    void launch(Slot& slot, Transfer::Direction direction) noexcept;
    /// Instead of launch().
    void abandon(Slot& slot) noexcept;

    /// Waits for the end of a launched transfer; idle() must be false. Staged bytes stay where
    /// they are until the next open().
    End wait() noexcept;

   private:
    TransferQueue& queue_;
    std::vector<Slot> slots_;
    std::vector<std::size_t> free_;
};

}  // namespace frostline
