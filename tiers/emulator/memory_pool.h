// Pools of stream-ordered memory: how much is reserved and used, and who may reach it. Memory that
// a pool reserves counts as used by its device until it is trimmed or released past the threshold.
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>
#include <memory>

#include "tiers/emulator/settings.h"

namespace frostline::emulator {

struct MemoryPool {
    CUmemoryPool handle = nullptr;
    int device = 0;
    bool is_default = false;
    std::uint64_t used_bytes = 0;
    std::uint64_t used_high_bytes = 0;
    std::uint64_t kept_bytes = 0;  ///< reserved and unused, charged to the device
    std::uint64_t reserved_high_bytes = 0;
    std::uint64_t release_threshold = 0;
    std::uint64_t max_bytes = 0;        ///< 0: no limit
    std::array<int, 3> reuse{1, 1, 1};  ///< follow events, opportunistic, internal dependencies
    std::array<CUmemAccess_flags, kMaxDevices> access{};
    bool destroyed = false;  ///< by the user, while allocations of it live
};

/// The pool that a device has from the start.
std::shared_ptr<MemoryPool> make_default_pool(int device);

}  // namespace frostline::emulator
