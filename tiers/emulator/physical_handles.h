// Handles of physical memory, and the rules on where it may lie and who may reach it. The driver's
// mutex is held.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <memory>

#include "tiers/emulator/address_space.h"
#include "tiers/emulator/function.h"

namespace frostline::emulator {

bool is_on_device(const CUmemAllocationProp& properties);

/// Whether memory of that kind can be made; `error` is reported.
CUresult check_properties(const Call& call, const CUmemAllocationProp& properties);

/// Null after a report unless the handle is held; `error` then says what to return.
std::shared_ptr<PhysicalMemory> resolve_physical(const Call& call,
                                                 CUmemGenericAllocationHandle handle,
                                                 CUresult& error);

/// Which element of Region::access stands for the location.
std::size_t access_slot(const CUmemLocation& location);

/// Whether that access may be set for the mapping.
CUresult check_access(const Call& call, const CUmemAccessDesc& description, const Region& region);

}  // namespace frostline::emulator
