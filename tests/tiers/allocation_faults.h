// The test program's operator new, counted and made to fail on the n-th use on this thread.
#pragma once

#include <cstdint>

namespace frostline {

/// From now on the allocations of the library in which the address lies are left alone: it stands
/// for something that does not live in the program, such as a driver. One library.
void spare_allocations_of(const void* address);

/// While it lives, allocations of this thread are counted, and the `fail_at`-th (from 1; 0: none)
/// throws std::bad_alloc. With `from_then_on` every later one does, too.
class AllocationFault {
   public:
    explicit AllocationFault(std::uint64_t fail_at = 0, bool from_then_on = false);
    AllocationFault(const AllocationFault&) = delete;
    AllocationFault& operator=(const AllocationFault&) = delete;
    ~AllocationFault();

    std::uint64_t allocations() const;
    bool struck() const;
};

/// While it lives, allocations of this thread neither count nor fail: they are a stand-in's own.
class SparedAllocations {
   public:
    SparedAllocations();
    SparedAllocations(const SparedAllocations&) = delete;
    SparedAllocations& operator=(const SparedAllocations&) = delete;
    ~SparedAllocations();

   private:
    bool armed_;
};

}  // namespace frostline
