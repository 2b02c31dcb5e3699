// A heap of a GPU's memory, reused in the order of streams. Streams are CUstream or cudaStream_t,
// as void*, so that no CUDA header is needed here.
#pragma once

#include "frostline/heap_handle.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace frostline {

struct DeviceMemoryOptions {
    std::string name{};                ///< in messages
    int gpu = 0;                       ///< as CUDA counts them
    std::uint64_t capacity_bytes = 0;  ///< 0: what the device has free
    std::uint64_t chunk_bytes = 0;     ///< how much it takes at a time; 0: 2 MiB
    std::vector<int> peers{};          ///< other GPUs that may use the memory
    HeapReports reports{};
};

/// Thread-safe, as HeapHandle says. The host cannot touch what this hands out.
class DeviceMemory : public HeapHandle {
   public:
    /// Failures: NOT_FOUND (no driver), INVALID_ARGUMENT, and those of frostline_heap_open().
    static Outcome<DeviceMemory> open(const DeviceMemoryOptions& options = {}) noexcept {
        const auto heap = open_with(options.reports, [&](std::vector<std::string>& texts) {
            texts.emplace_back("kind=device");
            texts.push_back("gpu=" + std::to_string(options.gpu));
            if (!options.name.empty()) texts.push_back("name=" + options.name);
            if (options.capacity_bytes != 0) {
                texts.push_back("capacity=" + std::to_string(options.capacity_bytes));
            }
            if (options.chunk_bytes != 0) {
                texts.push_back("chunk=" + std::to_string(options.chunk_bytes));
            }
            std::string peers;
            for (const int peer : options.peers) {
                peers += (peers.empty() ? "peers=" : ",") + std::to_string(peer);
            }
            if (!peers.empty()) texts.push_back(peers);
        });
        if (!heap) return heap.failure();
        return DeviceMemory(*heap);
    }

    /// Streams must outlive the heap, which asks how far they have come, or be forgotten. In a
    /// program that is built with a per-thread default stream, null is not that stream: name
    /// streams there. `size_bytes` for work on `stream` (null: the legacy default stream), at a
    /// multiple of `alignment_bytes`, a power of two of at most 2 MiB. Null for no bytes. When the
    /// block is freed, work on that stream may still be queued. Failures: NO_SPACE,
    /// INVALID_ARGUMENT (the per-thread default stream, or one of a GPU that is no peer, among
    /// others), OUT_OF_MEMORY, CLOSED, BUSY (in a forked child).
    Outcome<void*> allocate(std::size_t size_bytes, void* stream = nullptr,
                            std::size_t alignment_bytes = 512) noexcept {
        return allocate_on(stream, size_bytes, alignment_bytes);
    }

    /// Work on `stream` uses the block, too: its memory waits for that after it was freed.
    Outcome<void> record_stream(void* block, void* stream) noexcept {
        return Outcome<void>::of(frostline_heap_record_stream(get(), block, stream));
    }

    /// The stream is about to be destroyed; its work may still be queued. Memory that was freed on
    /// it, or will be, serves others when that is done. A stream that was destroyed before keeps
    /// that memory until this is called, which then waits for the whole GPU. Failures: BUSY (a
    /// stream is being captured, or in a forked child), CLOSED, OUT_OF_MEMORY: call it again.
    Outcome<void> forget_stream(void* stream) noexcept {
        return Outcome<void>::of(frostline_heap_forget_stream(get(), stream));
    }

   private:
    explicit DeviceMemory(frostline_heap* heap) noexcept : HeapHandle(heap) {}
};

}  // namespace frostline
