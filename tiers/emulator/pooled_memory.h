// Stream-ordered memory. An address is handed out when it is asked for; the memory is there from
// the point of the stream's order at which it was allocated to that at which it is freed, and an
// access outside of that is an access to unmapped memory. The driver's mutex is held.
#pragma once

#include <cstdint>
#include <memory>

#include "tiers/emulator/driver.h"

namespace frostline::emulator {

std::shared_ptr<MemoryPool> make_pool(int device);

/// Null after a report if there is no such pool; `error` then says what to return.
std::shared_ptr<MemoryPool> resolve_pool(CUmemoryPool handle, CUresult& error);

/// Gives back what the pool keeps unused, but for so much that it still reserves `keep` bytes.
void trim_pool(MemoryPool& pool, std::uint64_t keep);

/// Takes an allocation of any kind away at once; no work may touch it.
void forget_allocation(std::uintptr_t start);

}  // namespace frostline::emulator
