// Finds the block that starts at an address. Readers take no lock: whoever frees an allocation may
// look it up while the heap changes others.
//
// Rule: an entry is one word that names both the address and the record, and it stays where a probe
// from its home slot finds it, but for the moment in which a removal nearby moves it. A reader that
// finds its address has the right record whatever goes on; one that does not find it must ask again
// under the heap's lock before it may say that the address is unknown. Tables that were outgrown
// are kept, because a reader may still be in them; each is half the next, so together they are one
// more.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace frostline {

/// insert(), erase() and reserve() under the heap's lock; find() by anyone.
class AddressIndex {
   public:
    /// Addresses are multiples of this, and lie within kReach of `base_address`.
    static constexpr std::uint64_t kUnitBytes = 512;
    static constexpr unsigned kUnitBits = 36;
    static constexpr std::uint64_t kReach = ((std::uint64_t{1} << kUnitBits) - 1) * kUnitBytes;
    /// Values are at most this.
    static constexpr std::uint32_t kMostValue = (std::uint32_t{1} << 28) - 1;

    explicit AddressIndex(std::uint64_t base_address) noexcept : base_address_(base_address) {}

    /// Makes sure that one more insert() finds room. False: no memory, nothing has changed.
    bool reserve() noexcept;
    /// The address is not in yet, and there is room.
    void insert(std::uint64_t address, std::uint32_t value) noexcept;
    void erase(std::uint64_t address) noexcept;

    /// What was inserted; kNone where nothing was seen. Budget: one or two cache misses.
    std::uint32_t find(std::uint64_t address) const noexcept;
    static constexpr std::uint32_t kNone = UINT32_MAX;

    std::size_t size_bytes() const noexcept;

   private:
    using Entry = std::uint64_t;  // unit + 1 above, value below; 0: vacant
    struct Table {
        std::size_t mask = 0;
        std::unique_ptr<std::atomic<Entry>[]> entries;
    };

    static std::size_t home(std::uint64_t unit, std::size_t mask) noexcept;
    std::uint64_t unit_of(std::uint64_t address) const noexcept {
        return (address - base_address_) / kUnitBytes;
    }
    void place(Table& table, Entry entry) noexcept;

    const std::uint64_t base_address_;
    std::atomic<const Table*> current_{nullptr};
    std::size_t count_ = 0;
    std::vector<std::unique_ptr<Table>> tables_;
};

}  // namespace frostline
