// A memory pool of PyTorch's: a heap of its own, because what a graph recorded there may run again.
// Its memory stays where it is until every user released the pool and nothing lives in it; and then
// until the device is idle, because a replay may still run, on a stream that nobody told us of.
#pragma once

#include "allocator/device_heap.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace frostline {

/// PyTorch's MempoolId_t.
using TorchPoolId = std::pair<unsigned long long, unsigned long long>;

struct TorchPool {
    TorchPoolId id;
    std::string name;                        ///< of its heap, in messages
    std::uint64_t uses = 0;                  ///< begins less releases; under the device's lock
    std::uint64_t begun = 0;                 ///< how often; under the device's lock
    std::atomic<std::uint64_t> live{0};      ///< blocks
    std::atomic<DeviceHeap*> heap{nullptr};  ///< `owner`'s, once it is made
    std::unique_ptr<DeviceHeap> owner;       ///< set once, under the device's lock
};

/// While it lasts, allocations for which the filter holds come from the pool.
struct TorchRoute {
    std::shared_ptr<TorchPool> pool;
    std::function<bool(CUstream)> filter;
};

}  // namespace frostline
