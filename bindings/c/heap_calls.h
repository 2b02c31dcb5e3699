// Who is in a call of which heap, so that whoever ends a heap can wait until nobody is. A call pays
// two plain stores and a load for it, as the owner of a CacheLock does, and for the same reason.
//
// Rule: a thread says which heap it calls before it looks whether somebody wants that heap alone.
// Whoever does says so, has the kernel put a barrier into every thread, and waits for those who
// said that they call it; the others see that it is wanted, and wait. No call is made within
// another.
#pragma once

#include "bindings/c/heap_names.h"

#include <atomic>
#include <chrono>
#include <mutex>

namespace frostline {

namespace detail {

// What a thread says of itself.
struct HeapCallNote {
    std::atomic<const frostline_heap*> called{nullptr};
    std::atomic<bool> taken{true};  // by a thread that has not ended
    HeapCallNote* next = nullptr;   // among all notes
};

// The initial-exec model: one instruction, where the library would otherwise call for the address.
#if defined(__GNUC__)
__attribute__((tls_model("initial-exec")))
#endif
inline thread_local constinit HeapCallNote* heap_call_note = nullptr;

}  // namespace detail

/// This thread is in a call of the heap as long as this object lives. Budget: 2 ns.
class HeapCall {
   public:
    /// Waits while somebody has the heap alone; in a forked child, where that one is not, does not.
    explicit HeapCall(frostline_heap& name) noexcept : name_(name) {
        enter();
        if (name_.wanted.load(std::memory_order_seq_cst)) [[unlikely]]
            wait_and_enter();
    }
    HeapCall(const HeapCall&) = delete;
    HeapCall& operator=(const HeapCall&) = delete;
    ~HeapCall() { leave(); }

   private:
    void enter() noexcept {
        if (note_ == nullptr || !name_.barriers) [[unlikely]] {
            enter_slowly();
        } else {
            note_->called.store(&name_, std::memory_order_relaxed);
            std::atomic_signal_fence(std::memory_order_seq_cst);
        }
    }
    void leave() noexcept {
        if (note_ == nullptr) [[unlikely]] {
            name_.unnoted_calls.fetch_sub(1, std::memory_order_release);
        } else {
            note_->called.store(nullptr, std::memory_order_release);
        }
    }
    void enter_slowly() noexcept;
    void wait_and_enter() noexcept;

    frostline_heap& name_;
    detail::HeapCallNote* note_ = detail::heap_call_note;
};

/// Nobody else is in a call of the heap, nor begins one, as long as this object lives. Waits for
/// calls that go on, and lets others begin where those take long. Not from within a call.
class HeapAlone {
   public:
    explicit HeapAlone(frostline_heap& name) noexcept;
    HeapAlone(const HeapAlone&) = delete;
    HeapAlone& operator=(const HeapAlone&) = delete;
    ~HeapAlone();

   private:
    using Clock = std::chrono::steady_clock;
    bool try_alone(Clock::time_point until) noexcept;

    frostline_heap& name_;
    const std::lock_guard<std::mutex> lock_;
};

}  // namespace frostline
