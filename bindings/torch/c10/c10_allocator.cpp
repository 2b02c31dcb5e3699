// What needs PyTorch's own C++ types: an exception that it knows, and an allocator for CPU tensors
// over a HostHeap. A library of its own, because only a PyTorch of this very version can load it.
//
// What this allocator gave is recognised by its address, since PyTorch has one deleter for all: in
// a forked child the heap is out of use, and PyTorch's own allocator serves.
#include "allocator/host_heap.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#define FROSTLINE_C10_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using frostline::Errc;
using frostline::Error;
using frostline::HostHeap;

thread_local std::optional<Error> last_error;

[[noreturn]] void raise_out_of_memory(const std::string& message) {
    throw c10::OutOfMemoryError({__func__, __FILE__, __LINE__}, message);
}

class HostHeapAllocator final : public c10::Allocator {
   public:
    explicit HostHeapAllocator(std::unique_ptr<HostHeap> heap) : heap_(std::move(heap)) {
        only = this;
    }

    c10::DataPtr allocate(std::size_t size_bytes) override {
        const auto block = heap_->allocate(size_bytes);
        if (block) return {*block, *block, &give_back, c10::Device(c10::DeviceType::CPU)};
        if (block.error().code() == Errc::busy) {
            void* const theirs = fallback_->raw_allocate(size_bytes);
            return {theirs, theirs, &give_back, c10::Device(c10::DeviceType::CPU)};
        }
        raise_out_of_memory(block.error().message());
    }
    c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
    void copy_data(void* target, const void* source, std::size_t size_bytes) const override {
        default_copy_data(target, source, size_bytes);
    }
    const HostHeap& heap() const { return *heap_; }

   private:
    static void give_back(void* block) {
        if (block == nullptr) return;
        if (!only->heap_->owns(block)) return only->fallback_->raw_deallocate(block);
        const auto freed = only->heap_->free(block);
        // A child frees what it inherited, and that is the parent's.
        if (freed || freed.error().code() == Errc::busy) return;
        std::fprintf(stderr, "frostline: %s\n", freed.error().message());
    }

    static inline HostHeapAllocator* only = nullptr;

    const std::unique_ptr<HostHeap> heap_;
    c10::Allocator* const fallback_ = c10::GetDefaultCPUAllocator();
};

HostHeapAllocator* installed = nullptr;

}  // namespace

/// For frostline_torch_on_out_of_memory(): becomes torch.OutOfMemoryError in Python.
FROSTLINE_C10_EXPORT void frostline_c10_raise_out_of_memory(const char* message) {
    raise_out_of_memory(message);
}

/// The message of this thread's last failed call; never NULL.
FROSTLINE_C10_EXPORT const char* frostline_c10_last_error() {
    return last_error ? last_error->message() : "";
}

/// Gives CPU tensors memory from a HostHeap of at most so many bytes (0: all of the machine's) from
/// now on, until the process ends. Not thread-safe, as PyTorch's registration is not. Returns 0, or
/// a frostline_status: BUSY (done before), those of make_host_heap().
FROSTLINE_C10_EXPORT int frostline_c10_use_for_cpu(std::uint64_t capacity_bytes) {
    const auto fail = [](const Error& error) {
        last_error = error;
        return static_cast<int>(error.code());
    };
    if (installed != nullptr) {
        return fail(Error(Errc::busy, 0, "CPU tensors are in Frostline's memory already"));
    }
    frostline::HostHeapOptions options;
    options.capacity_bytes = capacity_bytes;
    options.heap.name = "PyTorch's heap of CPU tensors";
    auto heap = frostline::make_host_heap(options);
    if (!heap) return fail(heap.error());
    // Never destroyed: tensors outlive every static object.
    installed = new HostHeapAllocator(*std::move(heap));
    constexpr std::uint8_t kAboveTheDefault = 1;
    c10::SetAllocator(c10::DeviceType::CPU, installed, kAboveTheDefault);
    return 0;
}

/// Bytes: in use, mapped, and allocations so far; 0 before frostline_c10_use_for_cpu().
FROSTLINE_C10_EXPORT void frostline_c10_cpu_statistics(std::uint64_t* live, std::uint64_t* mapped,
                                                       std::uint64_t* births) {
    frostline::HeapStatistics now;
    if (installed != nullptr) now = installed->heap().statistics();
    *live = now.live;
    *mapped = now.mapped;
    *births = now.births;
}
