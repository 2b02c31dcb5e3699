// A heap of host memory, and blocks of it, that a test cannot go on without.
#pragma once

#include "allocator/host_heap.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>

namespace frostline {

inline constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

inline std::unique_ptr<HostHeap> make(const HostHeapOptions& options) {
    auto made = make_host_heap(options);
    if (!made) {
        ADD_FAILURE() << made.error().message();
        std::abort();
    }
    return *std::move(made);
}

inline std::byte* must_allocate(HostHeap& heap, std::uint64_t size_bytes,
                                std::uint64_t alignment = 512) {
    const auto block = heap.allocate(size_bytes, 0, alignment);
    EXPECT_TRUE(block.has_value()) << block.error().message();
    return static_cast<std::byte*>(block.value_or(nullptr));
}

}  // namespace frostline
