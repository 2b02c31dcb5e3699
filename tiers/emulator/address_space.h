// What lies where: reservations, and the regions of memory in them or beside them. Regions never
// overlap. What the driver hands out is protected by the page tables, too: reserved but unmapped
// addresses and mappings without access set fault, for kernels as for the host.
#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "tiers/emulator/context.h"
#include "tiers/emulator/operation.h"
#include "tiers/emulator/physical_memory.h"
#include "tiers/emulator/settings.h"

namespace frostline::emulator {

struct MemoryPool;

enum class RegionKind {
    mapping,     ///< cuMemMap, inside of a reservation
    allocation,  ///< cuMemAlloc
    pooled,      ///< cuMemAllocAsync
    pinned,      ///< cuMemAllocHost and kin
    registered,  ///< cuMemHostRegister
    imported     ///< opened from another process or another context
};

/// A run of addresses that devices may reach.
struct Region {
    std::uintptr_t start = 0;
    std::size_t bytes = 0;
    std::size_t mapped_bytes = 0;  ///< whole pages, with the guard page after an allocation
    RegionKind kind = RegionKind::allocation;
    int device = -1;  ///< where the bytes lie; -1: on the host
    std::uint64_t buffer_id = 0;
    std::shared_ptr<PhysicalMemory> physical;  ///< null for registered memory
    std::weak_ptr<Context> context;
    std::shared_ptr<MemoryPool> pool;
    unsigned flags = 0;      ///< of cuMemHostAlloc or cuMemHostRegister
    bool live = true;        ///< false: allocated in stream order, and not yet, or no longer, there
    bool freed = false;      ///< a stream-ordered release is queued
    bool read_only = false;  ///< registered so
    /// Mappings alone: who may do what; the host is the last.
    std::array<CUmemAccess_flags, kMaxDevices + 1> access{};

    std::uintptr_t end() const { return start + bytes; }
    bool on_host() const { return device < 0; }
};

struct Reservation {
    std::uintptr_t start = 0;
    std::size_t bytes = 0;
};

/// Not thread-safe: the driver's mutex guards it.
class AddressSpace {
   public:
    std::map<std::uintptr_t, Reservation> reservations;
    std::map<std::uintptr_t, Region> regions;

    /// The region, or reservation, that the address lies in; null if none.
    Region* region_at(std::uintptr_t address);
    const Reservation* reservation_at(std::uintptr_t address) const;

    /// Whether any region overlaps the range.
    bool overlaps_region(std::uintptr_t start, std::size_t bytes) const;

    /// Whether `device` may do `need` to each byte of the range now; else what is wrong.
    std::optional<Violation> check(const TouchedRange& range, int device);
};

/// Whether code on `device` may reach a classic allocation that lies on `owner`.
bool peer_reachable(int device, int owner);

}  // namespace frostline::emulator
