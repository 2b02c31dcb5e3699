// Taking memory away: page tables and books together, so that an address is either a region or a
// reservation that faults, or nothing of the driver's. The driver's mutex is held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tiers/emulator/address_space.h"

namespace frostline::emulator {

/// Address space that faults when it is touched; 0 if the system refuses. alignment: a power of
/// two, at least a page. near: a hint, or 0.
std::uintptr_t reserve_addresses(std::size_t bytes, std::size_t alignment, std::uintptr_t near);
void release_addresses(std::uintptr_t start, std::size_t bytes);

/// Maps the memory over reserved addresses, at first without access for anybody if `accessible` is
/// false. False if the system refuses; the addresses fault then as before.
bool map_physical(const PhysicalMemory& physical, std::uintptr_t start, std::size_t bytes,
                  bool accessible);
/// Makes the addresses fault again.
void unmap_to_reservation(std::uintptr_t start, std::size_t bytes);

/// Sets the host's page protection to what any device or the host may do with the mapping.
bool protect_mapping(const Region& region);

/// Adds the region under a fresh buffer id.
Region& add_region(Region region);
/// Forgets the region, and gives its pages back or makes them fault. No work may touch it.
void remove_region(std::uintptr_t start);

/// Physical memory of a device, charged to it, or of the host if device is null; in a file of its
/// own if it may be exported. Null if it does not fit or the system refuses.
std::shared_ptr<PhysicalMemory> take_physical(Device* device, std::size_t bytes, bool own_file);

/// One block of classic memory of a device, charged and mapped, with a guard page behind it.
/// CUDA_ERROR_OUT_OF_MEMORY if it does not fit.
CUresult allocate_on_device(int device, std::size_t bytes, RegionKind kind, bool map_now,
                            const std::shared_ptr<Context>& context, std::uintptr_t& address);

}  // namespace frostline::emulator
