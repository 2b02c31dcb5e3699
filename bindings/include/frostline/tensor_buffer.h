// A tensor's memory, freed when its owner goes. Of a tensor it knows the size and the stream; shape
// and type are the framework's.
#pragma once

#include "frostline/device_memory.h"
#include "frostline/host_memory.h"
#include "frostline/standard_calls.h"

#include <cstddef>
#include <utility>

namespace frostline {

/// Owns one block, or none; movable. Work that was queued on the buffer's streams may still go on
/// when it is destroyed: the memory is used again only after that. It keeps its heap from being
/// closed. Thread-compatible.
class TensorBuffer {
   public:
    TensorBuffer() noexcept = default;
    /// Failures: as HostMemory::allocate(). No bytes make an empty buffer.
    static Outcome<TensorBuffer> create(HostMemory& memory, std::size_t size_bytes,
                                        std::size_t alignment_bytes = 512) {
        return own(memory.get(), memory.allocate(size_bytes, alignment_bytes), size_bytes, nullptr);
    }
    /// For work on `stream`. Failures: as DeviceMemory::allocate().
    static Outcome<TensorBuffer> create(DeviceMemory& memory, std::size_t size_bytes, void* stream,
                                        std::size_t alignment_bytes = 512) {
        return own(memory.get(), memory.allocate(size_bytes, stream, alignment_bytes), size_bytes,
                   stream);
    }

    TensorBuffer(const TensorBuffer&) = delete;
    TensorBuffer& operator=(const TensorBuffer&) = delete;
    TensorBuffer(TensorBuffer&& other) noexcept { swap(other); }
    TensorBuffer& operator=(TensorBuffer&& other) noexcept {
        TensorBuffer(std::move(other)).swap(*this);
        return *this;
    }
    ~TensorBuffer() {
        if (data_ != nullptr) free_or_report(heap_, data_, size_bytes_);
    }
    void swap(TensorBuffer& other) noexcept {
        std::swap(heap_, other.heap_);
        std::swap(data_, other.data_);
        std::swap(size_bytes_, other.size_bytes_);
        std::swap(stream_, other.stream_);
    }

    /// An address in device memory where that is what it came from. Null if empty.
    void* data() const noexcept { return data_; }
    std::size_t size_bytes() const noexcept { return size_bytes_; }
    /// That it was made for; null for host memory.
    void* stream() const noexcept { return stream_; }
    explicit operator bool() const noexcept { return data_ != nullptr; }

    /// Work on `stream` uses the memory, too. Failures: as DeviceMemory::record_stream().
    Outcome<void> record_stream(void* stream) noexcept {
        if (data_ == nullptr) return {};
        return Outcome<void>::of(frostline_heap_record_stream(heap_, data_, stream));
    }
    /// Frees it now.
    void reset() noexcept { TensorBuffer().swap(*this); }
    /// The block, which is the caller's from now on, to be given back to the heap.
    [[nodiscard]] void* release() noexcept {
        void* const block = std::exchange(data_, nullptr);
        TensorBuffer().swap(*this);
        return block;
    }

   private:
    static Outcome<TensorBuffer> own(frostline_heap* heap, const Outcome<void*>& block,
                                     std::size_t size_bytes, void* stream) {
        if (!block) return block.failure();
        TensorBuffer buffer;
        buffer.heap_ = heap;
        buffer.data_ = *block;
        buffer.size_bytes_ = size_bytes;
        buffer.stream_ = stream;
        return buffer;
    }

    frostline_heap* heap_ = nullptr;
    void* data_ = nullptr;
    std::size_t size_bytes_ = 0;
    void* stream_ = nullptr;
};

}  // namespace frostline
