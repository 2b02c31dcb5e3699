// Devices and contexts. A context belongs to one device; an error that makes its memory
// untrustworthy sticks to it until it is destroyed or reset.
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <thread>

#include "tiers/emulator/engine.h"
#include "tiers/emulator/physical_memory.h"
#include "tiers/emulator/stream.h"

namespace frostline::emulator {

struct MemoryPool;

struct Context {
    CUcontext handle = nullptr;
    std::uint64_t id = 0;
    int device = 0;
    unsigned flags = 0;
    bool primary = false;
    CUresult sticky = CUDA_SUCCESS;
    std::shared_ptr<Stream> legacy_stream;
    std::map<std::thread::id, std::shared_ptr<Stream>> thread_streams;
    std::set<std::uint64_t> streams;  ///< handles of those that the user created
    std::set<std::uint64_t> events;
    std::set<int> peers;  ///< devices whose classic allocations are reachable from here
    std::map<CUlimit, std::size_t> limits;
};

struct Device {
    int ordinal = 0;
    std::uint64_t capacity_bytes = 0;
    std::uint64_t used_bytes = 0;  ///< physical handles and allocations
    PhysicalStore store;
    std::shared_ptr<Context> primary;  ///< null unless retained
    unsigned primary_uses = 0;
    unsigned primary_flags = 0;
    std::shared_ptr<MemoryPool> default_pool;
    std::shared_ptr<MemoryPool> current_pool;
    std::array<Engine*, kEnginesPerDevice> engines{};  ///< owned by the driver, kept over restarts
};

}  // namespace frostline::emulator
