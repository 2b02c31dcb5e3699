// Waiting, and the kernel's barrier.
#include "allocator/heap/cache_lock.h"

#include "tiers/check.h"

#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace frostline {
namespace {

long membarrier(int command) noexcept {
    return syscall(SYS_membarrier, command, 0, 0);
}

}  // namespace

// A container may forbid the call; that is no error.
bool has_process_barrier() noexcept {
    static const bool registered = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0 &&
                                   membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0;
    return registered;
}

void process_barrier() noexcept {
    if (!has_process_barrier()) return;  // the locks' owners do without
    FROSTLINE_CHECK(membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0,
                    "the kernel refuses a barrier that it gave before");
}

void CacheLock::wait_for_owner() const noexcept {
    while (held_.load(std::memory_order_seq_cst)) sched_yield();
}

void CacheLock::wait_until_unwanted() const noexcept {
    while (wanted_.load(std::memory_order_acquire)) sched_yield();
}

}  // namespace frostline
