// A list of notes, one for each thread that ever called a heap. It only grows, and notes of threads
// that ended serve later ones, so that readers need no lock.
#include "bindings/c/heap_calls.h"

#include "allocator/heap/cache_lock.h"
#include "allocator/heap/thread_end.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <thread>
#include <utility>

namespace frostline {
namespace {

using detail::heap_call_note;
using detail::HeapCallNote;

constexpr std::chrono::milliseconds kFirstPatience{1};
constexpr std::chrono::milliseconds kMostPatience{16};
constexpr std::chrono::milliseconds kPause{1};

std::atomic<HeapCallNote*> all_notes{nullptr};

thread_local constinit bool thread_ended = false;

// Leaves the note to another thread. What this one destroys later does without.
void leave_note(void* note) noexcept {
    thread_ended = true;
    heap_call_note = nullptr;
    static_cast<HeapCallNote*>(note)->taken.store(false, std::memory_order_release);
}

HeapCallNote* spare_note() noexcept {
    for (auto* note = all_notes.load(std::memory_order_acquire); note != nullptr;
         note = note->next) {
        if (!note->taken.exchange(true, std::memory_order_acq_rel)) return note;
    }
    auto* const note = new (std::nothrow) HeapCallNote;
    if (note == nullptr) return nullptr;
    note->next = all_notes.load(std::memory_order_relaxed);
    while (!all_notes.compare_exchange_weak(note->next, note, std::memory_order_seq_cst,
                                            std::memory_order_relaxed)) {
    }
    return note;
}

// Until the thread ends. Null: no memory.
HeapCallNote* note_for_this_thread() noexcept {
    static const ThreadEnd at_end(&leave_note);
    HeapCallNote* const note = spare_note();
    if (note == nullptr || at_end.ask(note)) return note;
    note->taken.store(false, std::memory_order_release);
    return nullptr;
}

}  // namespace

// In a thread that is ending, and when there is no memory for a note, the call is counted instead.
void HeapCall::enter_slowly() noexcept {
    if (note_ == nullptr && !thread_ended) {
        note_ = heap_call_note = note_for_this_thread();
    }
    if (note_ == nullptr) {
        name_.unnoted_calls.fetch_add(1, std::memory_order_seq_cst);
    } else {
        note_->called.store(&name_, std::memory_order_seq_cst);
    }
}

void HeapCall::wait_and_enter() noexcept {
    do {
        if (name_.process.is_child()) return;
        leave();
        while (name_.wanted.load(std::memory_order_acquire)) sched_yield();
        enter();
    } while (name_.wanted.load(std::memory_order_seq_cst));
}

// A call may wait for a stream whose work is about to call the heap. So it is wanted for a while
// only, and then others may call before it is wanted again.
HeapAlone::HeapAlone(frostline_heap& name) noexcept : name_(name), lock_(name.ending) {
    std::chrono::milliseconds patience = kFirstPatience;
    while (!try_alone(Clock::now() + patience)) {
        name_.wanted.store(false, std::memory_order_release);
        std::this_thread::sleep_for(kPause);
        patience = std::min(2 * patience, kMostPatience);
    }
}

bool HeapAlone::try_alone(Clock::time_point until) noexcept {
    name_.wanted.store(true, std::memory_order_seq_cst);
    process_barrier();
    const auto none = [&](auto&& is_called) {
        while (is_called()) {
            if (Clock::now() > until) return false;
            sched_yield();
        }
        return true;
    };
    if (!none([&] { return name_.unnoted_calls.load(std::memory_order_seq_cst) > 0; })) {
        return false;
    }
    for (auto* note = all_notes.load(std::memory_order_seq_cst); note != nullptr;
         note = note->next) {
        if (!none([&] { return note->called.load(std::memory_order_seq_cst) == &name_; })) {
            return false;
        }
    }
    return true;
}

HeapAlone::~HeapAlone() {
    name_.wanted.store(false, std::memory_order_release);
}

}  // namespace frostline
