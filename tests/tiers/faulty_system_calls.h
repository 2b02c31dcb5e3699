// A table of system calls in which the n-th use of a chosen one fails or falls short; everything
// else goes to the operating system. One fault layer for every test folder.
//
//     const FaultInjection fault({.call = Call::pwrite, .nth = 2, .error = ENOSPC});
//     SwapTier::create({.places = {folder}, .calls = &faulty_system_calls()});
//
// Counting goes on without a fault armed: FaultInjection(Fault{}) counts and injects nothing.
#pragma once

#include "tests/tiers/system_call.h"
#include "tiers/system_calls.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace frostline {

/// What goes wrong: the `nth` use of `call` (from 1), and with `from_then_on` every later one.
struct Fault {
    Call call = Call::none;
    std::uint64_t nth = 1;
    int error = 5;             ///< errno; EIO unless told
    bool falls_short = false;  ///< pread, pwrite, pmem_map_file: half is done instead of an error
    bool from_then_on = false;
};

/// The state behind the table; function pointers carry none of their own.
struct FaultState {
    Fault fault;
    std::array<std::atomic<std::uint64_t>, kCalls> uses{};
    std::atomic<std::uint64_t> injected{0};
    std::function<void(Call)> after_call;       ///< sees the process between two calls
    std::size_t max_transfer_bytes = SIZE_MAX;  ///< no pread or pwrite moves more
};
inline FaultState* armed_faults = nullptr;

/// Arms one fault for its scope. Set it up before threads use the table, end it after; one at a
/// time.
class FaultInjection {
   public:
    explicit FaultInjection(Fault fault) {
        state_.fault = fault;
        armed_faults = &state_;
    }
    FaultInjection(const FaultInjection&) = delete;
    FaultInjection& operator=(const FaultInjection&) = delete;
    ~FaultInjection() { armed_faults = nullptr; }

    std::uint64_t uses(Call call) const { return state_.uses[static_cast<std::size_t>(call)]; }
    /// How often the fault struck.
    std::uint64_t injected() const { return state_.injected; }
    void after_every_call(std::function<void(Call)> see) { state_.after_call = std::move(see); }
    void limit_transfers(std::size_t bytes) { state_.max_transfer_bytes = bytes; }

   private:
    FaultState state_;
};

namespace fault_layer {

/// Counts one use; whether it is the one that goes wrong.
inline bool strikes(Call call) {
    FaultState* const state = armed_faults;
    if (state == nullptr) return false;
    const std::uint64_t use = ++state->uses[static_cast<std::size_t>(call)];
    const Fault& fault = state->fault;
    const bool struck =
        fault.call == call && (use == fault.nth || (fault.from_then_on && use > fault.nth));
    if (struck) ++state->injected;
    return struck;
}

inline int fault_errno() {
    return armed_faults->fault.error;
}
inline int fault_errno_or_zero() {
    return armed_faults == nullptr ? 0 : fault_errno();
}
inline bool falls_short() {
    return armed_faults->fault.falls_short;
}

/// Ends every call: shows the process to who wants to see it, and keeps errno.
template <class Value>
Value done(Call call, Value value) {
    const int error = errno;
    if (armed_faults != nullptr && armed_faults->after_call) armed_faults->after_call(call);
    errno = error;
    return value;
}

template <class Value, class Real>
Value or_fail(Call call, Value failure, Real&& real) {
    if (!strikes(call)) return done(call, real());
    errno = fault_errno();
    return done(call, failure);
}

/// For calls that undo something: they do it even when they report a failure, as close() does on
/// Linux; otherwise the test itself would leak.
template <class Real>
int and_fail(Call call, Real&& real) {
    const int result = real();
    if (!strikes(call)) return done(call, result);
    errno = fault_errno();
    return done(call, -1);
}

/// For liburing's calls, which return -errno.
template <class Real>
int or_fail_negated(Call call, Real&& real) {
    return strikes(call) ? done(call, -fault_errno()) : done(call, real());
}

/// `failure` is what the call returns when it fails.
template <class Transfer>
ssize_t transfer(Call call, std::size_t count, Transfer&& real, ssize_t failure = -1) {
    const bool struck = strikes(call);
    if (struck && !falls_short()) {
        errno = fault_errno();
        return done(call, failure);
    }
    if (struck) count = std::max<std::size_t>(1, count / 2);
    if (armed_faults != nullptr) count = std::min(count, armed_faults->max_transfer_bytes);
    return done(call, real(count));
}

inline void* map_file(const char* path, size_t length, int flags, mode_t mode, size_t* mapped,
                      int* is_pmem) {
    const bool struck = strikes(Call::pmem_map_file);
    if (struck && !falls_short()) {
        errno = fault_errno();
        return done(Call::pmem_map_file, static_cast<void*>(nullptr));
    }
    void* const address =
        SystemCalls::real().pmem_map_file(path, length, flags, mode, mapped, is_pmem);
    if (struck && address != nullptr) {
        const std::size_t kept = *mapped / 2 / 4096 * 4096;
        // Not munmap: libpmem remembers which ranges are persistent memory.
        (void)SystemCalls::real().pmem_unmap(static_cast<char*>(address) + kept, *mapped - kept);
        *mapped = kept;
    }
    return done(Call::pmem_map_file, address);
}

}  // namespace fault_layer

/// The table to hand to tiers. Without an armed FaultInjection it is the operating system's.
inline const SystemCalls& faulty_system_calls() {
    using namespace fault_layer;
    static const SystemCalls& real = SystemCalls::real();
    static constexpr SystemCalls kTable{
        .open =
            [](const char* path, int flags, mode_t mode) {
                return or_fail(Call::open, -1, [=] { return real.open(path, flags, mode); });
            },
        .mkostemp =
            [](char* path, int flags) {
                return or_fail(Call::mkostemp, -1, [=] { return real.mkostemp(path, flags); });
            },
        .unlink =
            [](const char* path) {
                return or_fail(Call::unlink, -1, [=] { return real.unlink(path); });
            },
        .close = [](int fd) { return and_fail(Call::close, [=] { return real.close(fd); }); },
        .fstat =
            [](int fd, struct stat* out) {
                return or_fail(Call::fstat, -1, [=] { return real.fstat(fd, out); });
            },
        .fstatvfs =
            [](int fd, struct statvfs* out) {
                return or_fail(Call::fstatvfs, -1, [=] { return real.fstatvfs(fd, out); });
            },
        .fstatfs =
            [](int fd, struct statfs* out) {
                return or_fail(Call::fstatfs, -1, [=] { return real.fstatfs(fd, out); });
            },
        .flock =
            [](int fd, int operation) {
                return or_fail(Call::flock, -1, [=] { return real.flock(fd, operation); });
            },
        .posix_fallocate =
            [](int fd, off_t offset, off_t length) {
                const bool struck = strikes(Call::posix_fallocate);  // it returns its error
                return done(Call::posix_fallocate,
                            struck ? fault_errno() : real.posix_fallocate(fd, offset, length));
            },
        .ftruncate =
            [](int fd, off_t length) {
                return or_fail(Call::ftruncate, -1, [=] { return real.ftruncate(fd, length); });
            },
        .fallocate =
            [](int fd, int mode, off_t offset, off_t length) {
                return or_fail(Call::fallocate, -1,
                               [=] { return real.fallocate(fd, mode, offset, length); });
            },
        .block_device_size =
            [](int fd, std::uint64_t* size_bytes) {
                return or_fail(Call::block_device_size, -1,
                               [=] { return real.block_device_size(fd, size_bytes); });
            },
        .pread =
            [](int fd, void* buffer, size_t count, off_t offset) {
                return transfer(Call::pread, count, [=](std::size_t bytes) {
                    return real.pread(fd, buffer, bytes, offset);
                });
            },
        .pwrite =
            [](int fd, const void* buffer, size_t count, off_t offset) {
                return transfer(Call::pwrite, count, [=](std::size_t bytes) {
                    return real.pwrite(fd, buffer, bytes, offset);
                });
            },
        .mmap =
            [](void* address, size_t length, int protection, int flags, int fd, off_t offset) {
                return or_fail(Call::mmap, MAP_FAILED, [=] {
                    return real.mmap(address, length, protection, flags, fd, offset);
                });
            },
        .munmap =
            [](void* address, size_t length) {
                return and_fail(Call::munmap, [=] { return real.munmap(address, length); });
            },
        .mprotect =
            [](void* address, size_t length, int protection) {
                return or_fail(Call::mprotect, -1,
                               [=] { return real.mprotect(address, length, protection); });
            },
        .madvise =
            [](void* address, size_t length, int advice) {
                return or_fail(Call::madvise, -1,
                               [=] { return real.madvise(address, length, advice); });
            },
        .mbind =
            [](void* address, unsigned long length, int mode, const unsigned long* nodes,
               unsigned long max_node, unsigned flags) {
                return or_fail(Call::mbind, -1L, [=] {
                    return real.mbind(address, length, mode, nodes, max_node, flags);
                });
            },
        .move_pages =
            [](int pid, unsigned long count, void** pages, const int* nodes, int* status,
               int flags) {
                return or_fail(Call::move_pages, -1L, [=] {
                    return real.move_pages(pid, count, pages, nodes, status, flags);
                });
            },
        .get_mempolicy =
            [](int* mode, unsigned long* nodes, unsigned long max_node, void* address,
               unsigned long flags) {
                return or_fail(Call::get_mempolicy, -1L, [=] {
                    return real.get_mempolicy(mode, nodes, max_node, address, flags);
                });
            },
        .set_mempolicy =
            [](int mode, const unsigned long* nodes, unsigned long max_node) {
                return or_fail(Call::set_mempolicy, -1L,
                               [=] { return real.set_mempolicy(mode, nodes, max_node); });
            },
        .sched_setaffinity =
            [](pid_t pid, size_t set_bytes, const cpu_set_t* set) {
                return or_fail(Call::sched_setaffinity, -1,
                               [=] { return real.sched_setaffinity(pid, set_bytes, set); });
            },
        .getcpu =
            [](unsigned* cpu, unsigned* node) {
                return or_fail(Call::getcpu, -1, [=] { return real.getcpu(cpu, node); });
            },
        .uring_init =
            [](unsigned entries, io_uring* ring, io_uring_params* parameters) {
                return or_fail_negated(Call::uring_init,
                                       [=] { return real.uring_init(entries, ring, parameters); });
            },
        .uring_register_files =
            [](io_uring* ring, const int* files, unsigned count) {
                return or_fail_negated(Call::uring_register_files, [=] {
                    return real.uring_register_files(ring, files, count);
                });
            },
        .uring_register_buffers =
            [](io_uring* ring, const iovec* buffers, unsigned count) {
                return or_fail_negated(Call::uring_register_buffers, [=] {
                    return real.uring_register_buffers(ring, buffers, count);
                });
            },
        .uring_submit_and_wait =
            [](io_uring* ring, unsigned wait_for) {
                return or_fail_negated(Call::uring_submit_and_wait,
                                       [=] { return real.uring_submit_and_wait(ring, wait_for); });
            },
        .uring_result =
            [](int result) {
                return static_cast<int>(transfer(
                    Call::uring_result, result > 0 ? static_cast<std::size_t>(result) : 0,
                    [=](std::size_t bytes) {
                        return result > 0 ? static_cast<ssize_t>(bytes)
                                          : static_cast<ssize_t>(result);
                    },
                    -fault_errno_or_zero()));
            },
        .pmem_map_file = map_file,
        .pmem_unmap =
            [](void* address, size_t length) {
                return and_fail(Call::pmem_unmap, [=] { return real.pmem_unmap(address, length); });
            },
        .pmem_msync =
            [](const void* address, size_t length) {
                return or_fail(Call::pmem_msync, -1,
                               [=] { return real.pmem_msync(address, length); });
            },
        // The next ones cannot fail: they are only counted.
        .pmem_memcpy =
            [](void* to, const void* from, size_t length, unsigned flags) {
                (void)strikes(Call::pmem_memcpy);
                return real.pmem_memcpy(to, from, length, flags);
            },
        .pmem_memset =
            [](void* to, int byte, size_t length, unsigned flags) {
                (void)strikes(Call::pmem_memset);
                return real.pmem_memset(to, byte, length, flags);
            },
        .pmem_flush =
            [](const void* address, size_t length) {
                (void)strikes(Call::pmem_flush);
                real.pmem_flush(address, length);
            },
        .pmem_drain =
            [] {
                (void)strikes(Call::pmem_drain);
                real.pmem_drain();
            },
    };
    return kTable;
}

}  // namespace frostline
