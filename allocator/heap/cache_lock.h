// The lock of a thread's cache, for one owner who takes it all the time and others who seldom do.
// The owner pays two plain stores and a load. What a store and a load of one thread lack to be seen
// by others in that order, the others bring about: between saying that they want the lock and
// looking whether the owner has it, they have the kernel put a barrier into every thread of the
// process (membarrier). Where the kernel does not do that, the owner takes part in the single order
// of sequentially consistent operations, which all of the others' are.
//
// Rule: after the barrier, either the owner's store is seen, and the others wait for it, or the
// owner's next load sees that the lock is wanted, and the owner waits.
#pragma once

#include <atomic>

namespace frostline {

/// Whether the kernel puts barriers into this process's threads. The first call asks it for that.
bool has_process_barrier() noexcept;

/// Everything that a thread of this process did before it is seen by the caller, and the other way
/// round. Costs a microsecond or two where other threads run.
void process_barrier() noexcept;

class CacheLock {
   public:
    /// `ordered`: the owner's stores are ordered by itself, and need no barrier of the kernel's.
    explicit CacheLock(bool ordered = !has_process_barrier()) noexcept : ordered_(ordered) {}
    CacheLock(const CacheLock&) = delete;
    CacheLock& operator=(const CacheLock&) = delete;

    /// By the owner, who does not have it. Budget: 2 ns.
    [[gnu::always_inline]] void lock() noexcept {
        while (!try_lock()) [[unlikely]] wait_until_unwanted();
    }
    void unlock() noexcept { held_.store(false, std::memory_order_release); }

    /// By others, of whom there is one at a time: want(), process_barrier(), wait_for_owner(), and
    /// the lock is theirs until give_back().
    void want() noexcept { wanted_.store(true, std::memory_order_seq_cst); }
    void wait_for_owner() const noexcept;
    void give_back() noexcept { wanted_.store(false, std::memory_order_release); }

   private:
    [[gnu::always_inline]] bool try_lock() noexcept {
        if (ordered_) [[unlikely]] {
            held_.store(true, std::memory_order_seq_cst);
        } else {
            held_.store(true, std::memory_order_relaxed);
            std::atomic_signal_fence(std::memory_order_seq_cst);
        }
        if (!wanted_.load(std::memory_order_seq_cst)) [[likely]]
            return true;
        held_.store(false, std::memory_order_release);
        return false;
    }
    void wait_until_unwanted() const noexcept;

    std::atomic<bool> held_{false};
    std::atomic<bool> wanted_{false};
    const bool ordered_;
};

}  // namespace frostline
