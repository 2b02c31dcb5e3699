// What needs PyTorch's own C++ types: an exception that it knows, and an allocator for CPU tensors
// over a HostHeap. A library of its own, because only a PyTorch of this very version can load it.
//
// What this allocator gave is recognised by its address, since PyTorch has one deleter for all: in
// a forked child the heap is out of use, and PyTorch's own allocator serves.
#include "bindings/torch/c10/cpu_heap.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <cstdio>

#define FROSTLINE_C10_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using frostline::CpuHeap;

constexpr int kInvalidArgument = 1;  // as frostline_status has it
constexpr int kBusy = 6;

CpuHeap::Message last_error{};
CpuHeap* cpu_heap = nullptr;  // set once

[[noreturn]] void raise_out_of_memory(const char* message) {
    throw c10::OutOfMemoryError({__func__, __FILE__, __LINE__}, message);
}

class HostHeapAllocator final : public c10::Allocator {
   public:
    c10::DataPtr allocate(std::size_t size_bytes) override {
        void* block = nullptr;
        CpuHeap::Message message{};
        switch (cpu_heap->allocate(size_bytes, block, message)) {
            case CpuHeap::Outcome::done:
                break;
            case CpuHeap::Outcome::forked:
                block = c10::GetDefaultCPUAllocator()->raw_allocate(size_bytes);
                break;
            case CpuHeap::Outcome::refused:
                raise_out_of_memory(message.data());
        }
        return {block, block, &give_back, c10::Device(c10::DeviceType::CPU)};
    }
    c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
    void copy_data(void* target, const void* source, std::size_t size_bytes) const override {
        default_copy_data(target, source, size_bytes);
    }

   private:
    // A child frees what it inherited, and that is the parent's.
    static void give_back(void* block) {
        if (!cpu_heap->owns(block)) return c10::GetDefaultCPUAllocator()->raw_deallocate(block);
        CpuHeap::Message message{};
        if (cpu_heap->free(block, message) == CpuHeap::Outcome::refused) {
            std::fprintf(stderr, "frostline: %s\n", message.data());
        }
    }
};

}  // namespace

/// For frostline_torch_on_out_of_memory(): becomes torch.OutOfMemoryError in Python.
FROSTLINE_C10_EXPORT void frostline_c10_raise_out_of_memory(const char* message) {
    raise_out_of_memory(message);
}

/// The message of the last frostline_c10_use_for_cpu() that failed; never NULL.
FROSTLINE_C10_EXPORT const char* frostline_c10_last_error() {
    return last_error.data();
}

/// Gives CPU tensors memory from a HostHeap of at most so many bytes (0: all of the machine's) from
/// now on, until the process ends. Not thread-safe, as PyTorch's registration is not. Returns 0, or
/// a frostline_status: BUSY (done before), INVALID_ARGUMENT (there can be no such heap).
FROSTLINE_C10_EXPORT int frostline_c10_use_for_cpu(std::uint64_t capacity_bytes) {
    if (cpu_heap != nullptr) {
        std::snprintf(last_error.data(), last_error.size(),
                      "CPU tensors are in Frostline's memory already; that holds until the process "
                      "ends");
        return kBusy;
    }
    cpu_heap = CpuHeap::create(capacity_bytes, last_error);
    if (cpu_heap == nullptr) return kInvalidArgument;
    static HostHeapAllocator allocator;
    constexpr std::uint8_t kAboveTheDefault = 1;
    c10::SetAllocator(c10::DeviceType::CPU, &allocator, kAboveTheDefault);
    return 0;
}

/// Bytes: in use, mapped, and allocations so far; 0 before frostline_c10_use_for_cpu().
FROSTLINE_C10_EXPORT void frostline_c10_cpu_statistics(std::uint64_t* live, std::uint64_t* mapped,
                                                       std::uint64_t* births) {
    const CpuHeap::Figures now = cpu_heap == nullptr ? CpuHeap::Figures{} : cpu_heap->figures();
    *live = now.live_bytes;
    *mapped = now.mapped_bytes;
    *births = now.births;
}
