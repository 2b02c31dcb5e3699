// A heap of host memory, page-locked for a GPU or not.
#pragma once

#include "frostline/heap_handle.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace frostline {

struct HostMemoryOptions {
    std::string name{};                ///< in messages
    std::uint64_t capacity_bytes = 0;  ///< 0: all memory of the machine
    std::uint64_t chunk_bytes = 0;     ///< how much it takes at a time; 0: 2 MiB
    std::optional<int> numa_node{};    ///< where the memory lies; nothing: anywhere
    std::optional<int> pinned_for{};   ///< the GPU that it is page-locked for; nothing: not at all
};

/// Thread-safe, as HeapHandle says.
class HostMemory : public HeapHandle {
   public:
    /// Failures: INVALID_ARGUMENT, and those of frostline_heap_open().
    static Outcome<HostMemory> open(const HostMemoryOptions& options = {}) {
        std::vector<std::string> texts{"kind=host"};
        if (!options.name.empty()) texts.push_back("name=" + options.name);
        if (options.capacity_bytes != 0) {
            texts.push_back("capacity=" + std::to_string(options.capacity_bytes));
        }
        if (options.chunk_bytes != 0) {
            texts.push_back("chunk=" + std::to_string(options.chunk_bytes));
        }
        if (options.numa_node) texts.push_back("numa_node=" + std::to_string(*options.numa_node));
        if (options.pinned_for) {
            texts.insert(texts.end(), {"pin=1", "gpu=" + std::to_string(*options.pinned_for)});
        }
        auto heap = HeapHandle::open(texts);
        if (!heap) return heap.failure();
        return HostMemory(*heap);
    }

    /// `size_bytes` at a multiple of `alignment_bytes`, a power of two of at most 2 MiB. Null for
    /// no bytes. Failures: NO_SPACE, INVALID_ARGUMENT, OUT_OF_MEMORY, CLOSED, BUSY (forked child).
    Outcome<void*> allocate(std::size_t size_bytes,
                            std::size_t alignment_bytes = alignof(std::max_align_t)) noexcept {
        return allocate_on(nullptr, size_bytes, alignment_bytes);
    }

   private:
    explicit HostMemory(frostline_heap* heap) noexcept : HeapHandle(heap) {}
};

}  // namespace frostline
