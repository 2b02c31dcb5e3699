// What a thread does when it ends, asked for in a way that can be refused. The language's own way,
// a thread_local with a destructor, ends the program where there is no memory for the request.
#pragma once

#include <pthread.h>

#include <optional>

namespace frostline {

/// Thread-safe. Lives as long as the process does.
class ThreadEnd {
   public:
    /// When a thread ends `act` is called with what the thread gave to ask(), behind the
    /// destructors of its thread_locals.
    explicit ThreadEnd(void (*act)(void*)) noexcept {
        pthread_key_t key = 0;
        if (pthread_key_create(&key, act) == 0) key_ = key;
    }
    ThreadEnd(const ThreadEnd&) = delete;
    ThreadEnd& operator=(const ThreadEnd&) = delete;

    /// For the calling thread; `value` is not null. False: there is no memory, or the process has
    /// no key left.
    bool ask(void* value) const noexcept {
        return key_.has_value() && pthread_setspecific(*key_, value) == 0;
    }

   private:
    std::optional<pthread_key_t> key_;
};

}  // namespace frostline
