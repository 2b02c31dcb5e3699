// An open-addressed table with linear probing and removal by shifting back (Knuth, The Art of
// Computer Programming 3, 6.4, Algorithm R), so that it never fills with tombstones.
#include "allocator/heap/address_index.h"

#include "tiers/check.h"

#include <new>

namespace frostline {
namespace {

constexpr unsigned kValueBits = 28;
constexpr std::uint64_t kValueMask = (std::uint64_t{1} << kValueBits) - 1;
constexpr std::size_t kFirstSlots = 256;

// Two thirds full at most: probes stay short, and an entry costs 12 to 24 bytes.
constexpr bool full(std::size_t count, std::size_t slots) noexcept {
    return count * 3 >= slots * 2;
}

constexpr std::uint64_t entry_of(std::uint64_t unit, std::uint32_t value) noexcept {
    return (unit + 1) << kValueBits | value;
}

constexpr std::uint64_t unit_in(std::uint64_t entry) noexcept {
    return (entry >> kValueBits) - 1;
}

}  // namespace

// Fibonacci hashing (Knuth, The Art of Computer Programming 3, 6.4): addresses that are equally far
// apart, as those of a batch of large blocks are, spread evenly.
std::size_t AddressIndex::home(std::uint64_t unit, std::size_t mask) noexcept {
    return static_cast<std::size_t>((unit * 0x9E3779B97F4A7C15U) >> 20) & mask;
}

bool AddressIndex::reserve() noexcept {
    if (!tables_.empty() && !full(count_ + 1, tables_.back()->mask + 1)) return true;
    const std::size_t slots = tables_.empty() ? kFirstSlots : (tables_.back()->mask + 1) * 2;
    try {
        auto table = std::make_unique<Table>();
        table->mask = slots - 1;
        table->entries = std::make_unique<std::atomic<Entry>[]>(slots);
        if (!tables_.empty()) {
            const Table& old = *tables_.back();
            for (std::size_t i = 0; i <= old.mask; ++i) {
                const Entry entry = old.entries[i].load(std::memory_order_relaxed);
                if (entry != 0) place(*table, entry);
            }
        }
        tables_.push_back(std::move(table));
    } catch (const std::bad_alloc&) {
        return false;
    }
    current_.store(tables_.back().get(), std::memory_order_release);
    return true;
}

void AddressIndex::place(Table& table, Entry entry) noexcept {
    std::size_t slot = home(unit_in(entry), table.mask);
    while (table.entries[slot].load(std::memory_order_relaxed) != 0) slot = (slot + 1) & table.mask;
    // Release: whoever reads the entry reads the record that it names as it was before.
    table.entries[slot].store(entry, std::memory_order_release);
}

void AddressIndex::insert(std::uint64_t address, std::uint32_t value) noexcept {
    place(*tables_.back(), entry_of(unit_of(address), value));
    ++count_;
}

void AddressIndex::erase(std::uint64_t address) noexcept {
    Table& table = *tables_.back();
    const std::uint64_t unit = unit_of(address);
    std::size_t hole = home(unit, table.mask);
    for (;; hole = (hole + 1) & table.mask) {
        const Entry entry = table.entries[hole].load(std::memory_order_relaxed);
        FROSTLINE_CHECK(entry != 0, "erasing an address that the index lacks");
        if (unit_in(entry) == unit) break;
    }
    // Entries behind the hole that a probe would no longer reach move into it. Each is copied
    // before its old place is overwritten, so that it is in the table at every moment.
    for (std::size_t slot = (hole + 1) & table.mask;; slot = (slot + 1) & table.mask) {
        const Entry entry = table.entries[slot].load(std::memory_order_relaxed);
        if (entry == 0) break;
        const std::size_t distance = (slot - home(unit_in(entry), table.mask)) & table.mask;
        if (distance < ((slot - hole) & table.mask)) continue;
        table.entries[hole].store(entry, std::memory_order_release);
        hole = slot;
    }
    table.entries[hole].store(0, std::memory_order_release);
    --count_;
}

std::uint32_t AddressIndex::find(std::uint64_t address) const noexcept {
    const Table* const table = current_.load(std::memory_order_acquire);
    if (table == nullptr || address < base_address_ || address - base_address_ >= kReach ||
        address % kUnitBytes != 0) {
        return kNone;
    }
    const std::uint64_t unit = unit_of(address);
    std::size_t slot = home(unit, table->mask);
    for (std::size_t probes = 0; probes <= table->mask; ++probes, slot = (slot + 1) & table->mask) {
        const Entry entry = table->entries[slot].load(std::memory_order_acquire);
        if (entry == 0) return kNone;
        if (unit_in(entry) == unit) return static_cast<std::uint32_t>(entry & kValueMask);
    }
    return kNone;
}

std::size_t AddressIndex::size_bytes() const noexcept {
    std::size_t size = 0;
    for (const auto& table : tables_) size += (table->mask + 1) * sizeof(Entry);
    return size;
}

}  // namespace frostline
