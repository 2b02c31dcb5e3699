// The other side of cpu_heap.h, where Frostline's headers are.
#include "bindings/torch/c10/cpu_heap.h"

#include "allocator/host_heap.h"

#include <fmt/format.h>

#include <new>
#include <utility>

namespace frostline {
namespace {

CpuHeap::Outcome tell(const Error& error, CpuHeap::Message& message) noexcept {
    if (error.code() == Errc::busy) return CpuHeap::Outcome::forked;
    *fmt::format_to_n(message.data(), message.size() - 1, "{}", error.message()).out = '\0';
    return CpuHeap::Outcome::refused;
}

}  // namespace

struct CpuHeap::Parts {
    std::unique_ptr<HostHeap> heap;
};

CpuHeap::CpuHeap(std::unique_ptr<Parts> parts) noexcept : parts_(std::move(parts)) {}
CpuHeap::~CpuHeap() = default;

CpuHeap* CpuHeap::create(std::uint64_t capacity_bytes, Message& message) noexcept {
    try {
        HostHeapOptions options;
        options.capacity_bytes = capacity_bytes;
        options.heap.name = "PyTorch's heap of CPU tensors";
        auto heap = make_host_heap(options);
        if (heap) return new CpuHeap(std::make_unique<Parts>(Parts{*std::move(heap)}));
        tell(heap.error(), message);
    } catch (const std::bad_alloc&) {
        tell(Error(Errc::out_of_memory, 0, "making the heap of CPU tensors"), message);
    }
    return nullptr;
}

CpuHeap::Outcome CpuHeap::allocate(std::size_t size_bytes, void*& block,
                                   Message& message) noexcept {
    const auto made = parts_->heap->allocate(size_bytes);
    if (!made) return tell(made.error(), message);
    block = *made;
    return Outcome::done;
}

CpuHeap::Outcome CpuHeap::free(void* block, Message& message) noexcept {
    const auto freed = parts_->heap->free(block);
    return freed ? Outcome::done : tell(freed.error(), message);
}

bool CpuHeap::owns(const void* address) const noexcept {
    return parts_->heap->owns(address);
}

CpuHeap::Figures CpuHeap::figures() const noexcept {
    const HeapStatistics now = parts_->heap->statistics();
    return {now.live, now.mapped, now.births};
}

}  // namespace frostline
