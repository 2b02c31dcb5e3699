// malloc and free of other allocators, taken out of their libraries without becoming the program's
// own: what the benchmark itself allocates stays where it was.
#pragma once

#include <cstddef>
#include <string>

namespace frostline::bench {

struct OtherAllocator {
    std::string name;
    void* (*allocate)(std::size_t size_bytes) = nullptr;
    void (*free)(void* block) = nullptr;
};

/// Each stays loaded to the end of the program, as its threads' data does. Throws
/// std::runtime_error, naming the package that is to be installed.
OtherAllocator load_jemalloc();
OtherAllocator load_mimalloc();

}  // namespace frostline::bench
