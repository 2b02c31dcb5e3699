// Every tensor that Frostline holds: its size, its copies, its place in the order of births and in
// the order of uses. Slots are reused under a new generation, and records never move in memory, so
// that giving back a pin needs no lock.
//
// Rule of concurrency. The residency word may be used from any thread. Everything else of a record
// is guarded by the lock of the engine that owns the table, with one exception: the holder of a pin
// may read copies[home], because neither the home nor its copy changes while it is pinned.
#pragma once

#include "allocator/residency.h"
#include "allocator/tensor_id.h"
#include "tiers/extent.h"
#include "tiers/result.h"

#include <boost/intrusive/list.hpp>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace frostline {

/// One place where a tensor's bytes lie. Elsewhere than at home it is good only while the residency
/// word's `written` is clear.
struct TensorCopy {
    Extent extent;
    std::optional<std::uint64_t> checksum;  ///< XXH3-64 of its bytes, where it was computed
};

namespace list_hooks {
struct ByBirth;
struct ByUse;
}  // namespace list_hooks

using BirthHook = boost::intrusive::list_base_hook<boost::intrusive::tag<list_hooks::ByBirth>>;
using UseHook = boost::intrusive::list_base_hook<boost::intrusive::tag<list_hooks::ByUse>>;

/// A tensor. Its lists are intrusive so that touching one costs no allocation.
struct TensorRecord : BirthHook, UseHook {
    Residency residency;
    std::uint32_t slot = 0;
    std::uint64_t size_bytes = 0;
    std::uint32_t held_pins = 0;  ///< pins that mean "still used by its producer"
    std::array<std::optional<TensorCopy>, kMaxTiers> copies;

    TensorId id() const noexcept { return {slot, residency.load().generation}; }
    const TensorCopy* copy_in(TierId tier) const noexcept {
        const auto& copy = copies[index_of(tier)];
        return copy ? &*copy : nullptr;
    }
};

using BirthOrder = boost::intrusive::list<TensorRecord, boost::intrusive::base_hook<BirthHook>>;
using UseOrder = boost::intrusive::list<TensorRecord, boost::intrusive::base_hook<UseHook>>;

class TensorTable {
   public:
    TensorTable() = default;
    ~TensorTable();
    TensorTable(const TensorTable&) = delete;
    TensorTable& operator=(const TensorTable&) = delete;

    /// A new tensor, youngest in both orders, home where `copy` lies. Caller holds the lock.
    /// Errors: out_of_memory (no room for another record).
    Result<TensorRecord*> create(std::uint64_t size_bytes, const TensorCopy& copy) noexcept;

    /// Frees the slot of a retired tensor whose copies were released. Caller holds the lock.
    void erase(TensorRecord& record) noexcept;

    /// Makes the tensor the most recently used of the fastest tier, if it is at home there.
    /// Follows every use, and every change of home. Caller holds the lock.
    void touch(TensorRecord& record) noexcept;

    /// The living tensor of that id, or nullptr. Caller holds the lock.
    TensorRecord* find(TensorId id) const noexcept;

    const BirthOrder& by_birth() const noexcept { return by_birth_; }  ///< oldest first
    /// Those at home in the fastest tier (TierId 0), least recently used first. Only these: what
    /// was evicted is what was used longest ago, and would stand before all that can be evicted.
    const UseOrder& by_use() const noexcept { return by_use_; }
    std::size_t size() const noexcept { return by_birth_.size(); }

   private:
    // Chunk c holds slots [c * kChunk, (c + 1) * kChunk); chunks never move.
    static constexpr std::size_t kChunk = 1024;
    static constexpr std::size_t kMaxChunks = 16384;  // 16 million tensors

    TensorRecord* slot(std::uint32_t index) const noexcept;
    Result<std::uint32_t> free_slot() noexcept;

    std::vector<std::unique_ptr<TensorRecord[]>> chunks_;
    std::vector<std::uint32_t> free_slots_;
    BirthOrder by_birth_;
    UseOrder by_use_;
};

}  // namespace frostline
