// The caches of all threads that use a heap, and how a thread finds its own. A cache outlives its
// thread: what it holds stays with the heap, and the next new thread goes on with it.
//
// Rule: a series of notes is never used again, so a thread's note of an ended heap, or of streams
// that have changed since, matches no other.
#pragma once

#include "allocator/heap/heap_backing.h"
#include "allocator/heap/thread_cache.h"

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace frostline {

/// A thread's note of the heap that it used last of those that share the note.
struct HeapThread {
    std::uint64_t series = 0;  ///< of the heap's notes; 0: none
    ThreadCache* cache = nullptr;
    StreamHandle stream = 0;  ///< the stream that it named last, and its tag
    StreamTag tag = kNoStream;
};

namespace detail {

inline constexpr std::size_t kHeapThreads = 4;
// The initial-exec model: one instruction, where the library would otherwise call for the address.
// Small enough for the room that the loader keeps for libraries that are loaded late.
#if defined(__GNUC__)
__attribute__((tls_model("initial-exec")))
#endif
inline thread_local constinit HeapThread heap_threads[kHeapThreads];

}  // namespace detail

/// Thread-safe.
class HeapCaches : public std::enable_shared_from_this<HeapCaches> {
   public:
    HeapCaches() noexcept;

    /// This thread's note of this heap; null when it has none yet, or not any longer.
    HeapThread* find() const noexcept {
        const std::uint64_t series = series_.load(std::memory_order_relaxed);
        HeapThread& thread = detail::heap_threads[series % detail::kHeapThreads];
        return thread.series == series ? &thread : nullptr;
    }
    /// From now on no thread has a note: a stream that one may name is not what it was.
    void renew_notes() noexcept;
    /// Makes the note, with a cache that is this thread's until it ends. Null: no memory, or the
    /// thread is ending; it does without a cache then.
    HeapThread* enter() noexcept;

    /// Calls `act` while every thread is kept from its cache; the caller holds no cache's lock.
    /// What is read there, and of blocks that caches hand out and take back, is of one moment. One
    /// barrier serves for all caches.
    template <class Act>
    void while_locked(Act&& act) const {
        const std::lock_guard lock(mutex_);
        // Gives all of them back, whatever `act` throws.
        struct Wanted {
            const std::vector<std::unique_ptr<ThreadCache>>& caches;
            ~Wanted() {
                for (const auto& cache : caches) cache->lock.give_back();
            }
        };
        for (const auto& cache : caches_) cache->lock.want();
        const Wanted wanted{caches_};
        process_barrier();
        for (const auto& cache : caches_) cache->lock.wait_for_owner();
        act();
    }
    /// Calls `visit` with each cache, of whatever thread, as while_locked() does.
    template <class Visit>
    void for_each_locked(Visit&& visit) const {
        while_locked([&] {
            for (const auto& cache : caches_) visit(*cache);
        });
    }

   private:
    friend class HeapThreadEnd;
    void retire(ThreadCache& cache) noexcept;

    const std::uint64_t number_;  // of the heap; never used again
    std::atomic<std::uint64_t>
        series_;  // its remainder says which of a thread's notes is the heap's
    const pid_t process_;
    mutable std::mutex mutex_;  // guards both; taken before a cache's own lock
    std::vector<std::unique_ptr<ThreadCache>> caches_;
    std::vector<ThreadCache*> spare_;  // of threads that ended
};

}  // namespace frostline
