// Tells whether this process is a fork of the one in which an object was made. Threads and the
// owners of locks do not survive a fork, so such an object must not be used in the child.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace frostline {

/// Thread-safe. is_child() is one relaxed load: cheap enough for every call.
class ForkWatch {
   public:
    ForkWatch() noexcept : made_in_(forks().load(std::memory_order_relaxed)) {}
    bool is_child() const noexcept { return made_in_ != forks().load(std::memory_order_relaxed); }

   private:
    // How many forks lie between this process and the first; counted in the child only.
    static std::atomic<std::uint32_t>& forks() noexcept {
        static std::atomic<std::uint32_t> count{0};
        static const int registered = pthread_atfork(nullptr, nullptr, [] { ++count; });
        (void)registered;  // fails only for lack of memory, and then every fork looks like none
        return count;
    }

    std::uint32_t made_in_;
};

}  // namespace frostline
