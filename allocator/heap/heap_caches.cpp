// Threads come and go; their caches stay with the heap.
#include "allocator/heap/heap_caches.h"

#include "allocator/heap/thread_end.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <new>

namespace frostline {

// What a thread has to do when it ends: it leaves its caches to their heaps, those that are still
// there.
class HeapThreadEnd {
   public:
    struct Entry {
        std::uint64_t heap = 0;
        std::weak_ptr<HeapCaches> caches;
        ThreadCache* cache = nullptr;
    };

    /// This thread's, made when it is first asked for. Null: no memory, or the thread is ending.
    static HeapThreadEnd* here() noexcept {
        if (of_this_thread != nullptr || ended) return of_this_thread;
        static const ThreadEnd at_end(&leave_caches);
        std::unique_ptr<HeapThreadEnd> end(new (std::nothrow) HeapThreadEnd);
        if (end != nullptr && at_end.ask(end.get())) of_this_thread = end.release();
        return of_this_thread;
    }

    std::vector<Entry> entries;

   private:
    static void leave_caches(void* of_thread) noexcept {
        const std::unique_ptr<HeapThreadEnd> end(static_cast<HeapThreadEnd*>(of_thread));
        // What the thread destroys after this may still use the heap: without a cache then.
        of_this_thread = nullptr;
        ended = true;
        for (HeapThread& thread : detail::heap_threads) thread = {};
        for (const Entry& entry : end->entries) {
            if (const auto caches = entry.caches.lock()) caches->retire(*entry.cache);
        }
    }

    static thread_local constinit HeapThreadEnd* of_this_thread;
    static thread_local constinit bool ended;
};

thread_local constinit HeapThreadEnd* HeapThreadEnd::of_this_thread = nullptr;
thread_local constinit bool HeapThreadEnd::ended = false;

namespace {

std::atomic<std::uint64_t> next_number{1};

std::uint64_t take_number() noexcept {
    return next_number.fetch_add(1, std::memory_order_relaxed);
}

// Heaps take turns at the notes of a thread, and each stays with its own.
std::uint64_t series_of(std::uint64_t number, std::uint64_t heap) noexcept {
    return number * detail::kHeapThreads + heap % detail::kHeapThreads;
}

}  // namespace

HeapCaches::HeapCaches() noexcept
    : number_(take_number()), series_(series_of(number_, number_)), process_(getpid()) {}

// Relaxed: whoever uses such a stream next has heard of the change from whoever asked for it.
void HeapCaches::renew_notes() noexcept {
    series_.store(series_of(take_number(), number_), std::memory_order_relaxed);
}

HeapThread* HeapCaches::enter() noexcept {
    HeapThreadEnd* const end = HeapThreadEnd::here();
    if (end == nullptr) return nullptr;
    try {
        auto& entries = end->entries;
        const auto known = std::find_if(entries.begin(), entries.end(),
                                        [&](const auto& entry) { return entry.heap == number_; });
        ThreadCache* cache = known == entries.end() ? nullptr : known->cache;
        if (cache == nullptr) {
            std::erase_if(entries, [](const auto& entry) { return entry.caches.expired(); });
            entries.reserve(entries.size() + 1);
            const std::lock_guard lock(mutex_);
            if (spare_.empty()) {
                caches_.reserve(caches_.size() + 1);
                spare_.reserve(caches_.size() + 1);  // so that retire() needs no memory
                caches_.push_back(std::make_unique<ThreadCache>());
                cache = caches_.back().get();
            } else {
                cache = spare_.back();
                spare_.pop_back();
            }
            entries.push_back({number_, weak_from_this(), cache});
        }
        const std::uint64_t series = series_.load(std::memory_order_relaxed);
        HeapThread& thread = detail::heap_threads[series % detail::kHeapThreads];
        thread = HeapThread{series, cache, 0, kNoStream};
        return &thread;
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}

void HeapCaches::retire(ThreadCache& cache) noexcept {
    // In a forked child the lock may be held by a thread that is not there, and nobody wants the
    // cache.
    if (getpid() != process_) return;
    const std::lock_guard lock(mutex_);
    spare_.push_back(&cache);
}

}  // namespace frostline
