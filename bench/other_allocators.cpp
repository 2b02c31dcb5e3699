// Loading them by the names that Debian 12 and 13 give the libraries.
#include "bench/other_allocators.h"

#include <fmt/core.h>

#include <dlfcn.h>

#include <initializer_list>
#include <stdexcept>

namespace frostline::bench {
namespace {

// RTLD_DEEPBIND: a library that calls its own malloc must not find the program's.
OtherAllocator load(const char* name, std::initializer_list<const char*> files,
                    const char* allocate, const char* free, const char* package) {
    for (const char* const file : files) {
        void* const library = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
        if (library == nullptr) continue;
        OtherAllocator found{
            name, reinterpret_cast<decltype(OtherAllocator::allocate)>(dlsym(library, allocate)),
            reinterpret_cast<decltype(OtherAllocator::free)>(dlsym(library, free))};
        if (found.allocate != nullptr && found.free != nullptr) return found;
    }
    const char* const why = dlerror();
    throw std::runtime_error(fmt::format("cannot load {}: {}; install Debian's {}", name,
                                         why == nullptr ? "it lacks malloc" : why, package));
}

}  // namespace

OtherAllocator load_jemalloc() {
    return load("jemalloc", {"libjemalloc.so.2"}, "malloc", "free", "libjemalloc2");
}

OtherAllocator load_mimalloc() {
    return load("mimalloc", {"libmimalloc.so", "libmimalloc.so.2", "libmimalloc.so.3"}, "mi_malloc",
                "mi_free", "libmimalloc-dev");
}

}  // namespace frostline::bench
