// Replaces the global operator new and delete of the test program; they pass everything on to
// malloc unless an AllocationFault is alive on the thread.
#include "tests/tiers/allocation_faults.h"

#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <utility>

namespace frostline {
namespace {

struct State {
    bool armed = false;
    std::uint64_t count = 0;
    std::uint64_t fail_at = 0;
    bool from_then_on = false;
    bool struck = false;
};
thread_local State state;

// A library whose allocations neither count nor fail.
struct Range {
    std::uintptr_t start = 0;
    std::uintptr_t end = 0;
};
Range spared;

bool is_spared(const void* caller) {
    const auto address = reinterpret_cast<std::uintptr_t>(caller);
    return address >= spared.start && address < spared.end;
}

void* allocate(std::size_t size, std::size_t alignment, const void* caller) {
    if (state.armed && !is_spared(caller)) {
        ++state.count;
        const bool past = state.from_then_on && state.count > state.fail_at;
        if (state.fail_at != 0 && (state.count == state.fail_at || past)) {
            state.struck = true;
            return nullptr;
        }
    }
    if (size == 0) size = 1;
    if (alignment == 0) return std::malloc(size);
    return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

void* allocate_or_throw(std::size_t size, std::size_t alignment, const void* caller) {
    void* const memory = allocate(size, alignment, caller);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}

}  // namespace

void spare_allocations_of(const void* address) {
    const auto find = [](dl_phdr_info* info, std::size_t, void* wanted) {
        const auto sought = reinterpret_cast<std::uintptr_t>(wanted);
        Range range{UINTPTR_MAX, 0};
        for (int i = 0; i < info->dlpi_phnum; ++i) {
            const ElfW(Phdr)& segment = info->dlpi_phdr[i];
            if (segment.p_type != PT_LOAD) continue;
            const std::uintptr_t start = info->dlpi_addr + segment.p_vaddr;
            range.start = std::min(range.start, start);
            range.end = std::max(range.end, start + segment.p_memsz);
        }
        if (sought < range.start || sought >= range.end) return 0;
        spared = range;
        return 1;
    };
    dl_iterate_phdr(find, const_cast<void*>(address));
}

AllocationFault::AllocationFault(std::uint64_t fail_at, bool from_then_on) {
    state = {.armed = true, .count = 0, .fail_at = fail_at, .from_then_on = from_then_on};
}
AllocationFault::~AllocationFault() {
    state = {};
}
std::uint64_t AllocationFault::allocations() const {
    return state.count;
}
bool AllocationFault::struck() const {
    return state.struck;
}

SparedAllocations::SparedAllocations() : armed_(std::exchange(state.armed, false)) {}
SparedAllocations::~SparedAllocations() {
    state.armed = armed_;
}

}  // namespace frostline

using frostline::allocate;
using frostline::allocate_or_throw;

void* operator new(std::size_t size) {
    return allocate_or_throw(size, 0, __builtin_return_address(0));
}
void* operator new[](std::size_t size) {
    return allocate_or_throw(size, 0, __builtin_return_address(0));
}
void* operator new(std::size_t size, std::align_val_t alignment) {
    return allocate_or_throw(size, static_cast<std::size_t>(alignment),
                             __builtin_return_address(0));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
    return allocate_or_throw(size, static_cast<std::size_t>(alignment),
                             __builtin_return_address(0));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
    return allocate(size, 0, __builtin_return_address(0));
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
    return allocate(size, 0, __builtin_return_address(0));
}
void operator delete(void* memory) noexcept {
    std::free(memory);
}
void operator delete[](void* memory) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
    std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
    std::free(memory);
}
void operator delete[](void* memory, std::align_val_t) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
    std::free(memory);
}
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
    std::free(memory);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept {
    std::free(memory);
}
void operator delete[](void* memory, const std::nothrow_t&) noexcept {
    std::free(memory);
}
