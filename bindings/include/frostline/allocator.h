// A standard allocator over host memory, for containers.
#pragma once

#include "frostline/host_memory.h"
#include "frostline/standard_calls.h"

#include <cstddef>
#include <limits>
#include <new>
#include <type_traits>

namespace frostline {

/// Stateful: two are equal if they are of the same heap. It goes along when a container is moved or
/// swapped, so that both take constant time, and stays behind when one is copied into another: the
/// target keeps its own heap. Each block spans a multiple of 512 bytes: for vectors rather than for
/// lists. A container that outlives the owner of its heap keeps its memory;
/// the last block that is freed closes the heap, and then there is no more.
/// Thread-safe.
template <class T>
class allocator {
   public:
    using value_type = T;
    using propagate_on_container_copy_assignment = std::false_type;
    using propagate_on_container_move_assignment = std::true_type;
    using propagate_on_container_swap = std::true_type;
    using is_always_equal = std::false_type;

    explicit allocator(const HostMemory& memory) noexcept : heap_(memory.get()) {}
    template <class U>
    allocator(const allocator<U>& other) noexcept  // NOLINT: containers rebind implicitly
        : heap_(other.heap()) {}

    /// Throws std::bad_array_new_length if so many have no size, and std::bad_alloc if there is no
    /// room; frostline_last_error() says why.
    [[nodiscard]] T* allocate(std::size_t count) {
        if (count > std::numeric_limits<std::size_t>::max() / sizeof(T)) {
            throw std::bad_array_new_length();
        }
        return static_cast<T*>(allocate_or_throw(heap_, count * sizeof(T), alignof(T), nullptr));
    }
    void deallocate(T* block, std::size_t count) noexcept {
        free_or_report(heap_, block, count * sizeof(T));
    }

    frostline_heap* heap() const noexcept { return heap_; }

   private:
    frostline_heap* heap_;
};

template <class T, class U>
bool operator==(const allocator<T>& one, const allocator<U>& other) noexcept {
    return one.heap() == other.heap();
}

}  // namespace frostline
