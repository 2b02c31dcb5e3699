// The system and libpmem calls that tiers make, as a table, so that tests can make the n-th one
// fail.
#pragma once

#include <sched.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <sys/vfs.h>

#include <cstddef>
#include <cstdint>

struct io_uring;
struct io_uring_params;
struct iovec;

namespace frostline {

/// Same contracts as the calls that the members are named after. A tier keeps a reference, so the
/// table must outlive it.
struct SystemCalls {
    int (*open)(const char* path, int flags, mode_t mode);
    int (*mkostemp)(char* path_template, int flags);
    int (*unlink)(const char* path);
    int (*close)(int fd);
    int (*fstat)(int fd, struct stat* out);
    int (*fstatvfs)(int fd, struct statvfs* out);
    int (*fstatfs)(int fd, struct statfs* out);
    int (*flock)(int fd, int operation);
    int (*posix_fallocate)(int fd, off_t offset, off_t length);
    int (*ftruncate)(int fd, off_t length);
    int (*fallocate)(int fd, int mode, off_t offset, off_t length);
    /// The ioctl BLKGETSIZE64.
    int (*block_device_size)(int fd, std::uint64_t* size_bytes);
    ssize_t (*pread)(int fd, void* buffer, size_t count, off_t offset);
    ssize_t (*pwrite)(int fd, const void* buffer, size_t count, off_t offset);
    void* (*mmap)(void* address, size_t length, int protection, int flags, int fd, off_t offset);
    int (*munmap)(void* address, size_t length);
    int (*mprotect)(void* address, size_t length, int protection);
    int (*madvise)(void* address, size_t length, int advice);
    long (*mbind)(void* address, unsigned long length, int mode, const unsigned long* nodes,
                  unsigned long max_node, unsigned flags);
    long (*move_pages)(int pid, unsigned long count, void** pages, const int* nodes, int* status,
                       int flags);
    long (*get_mempolicy)(int* mode, unsigned long* nodes, unsigned long max_node, void* address,
                          unsigned long flags);
    long (*set_mempolicy)(int mode, const unsigned long* nodes, unsigned long max_node);
    int (*sched_setaffinity)(pid_t pid, size_t set_bytes, const cpu_set_t* set);
    int (*getcpu)(unsigned* cpu, unsigned* node);
    // liburing's: they return -errno.
    int (*uring_init)(unsigned entries, io_uring* ring, io_uring_params* parameters);
    int (*uring_register_files)(io_uring* ring, const int* files, unsigned count);
    int (*uring_register_buffers)(io_uring* ring, const iovec* buffers, unsigned count);
    int (*uring_submit_and_wait)(io_uring* ring, unsigned wait_for);
    /// What a completion reports, passed through: bytes, or -errno.
    int (*uring_result)(int result);
    void* (*pmem_map_file)(const char* path, size_t length, int flags, mode_t mode,
                           size_t* mapped_length, int* is_pmem);
    int (*pmem_unmap)(void* address, size_t length);
    int (*pmem_msync)(const void* address, size_t length);
    // These cannot fail; tests count them.
    void* (*pmem_memcpy)(void* to, const void* from, size_t length, unsigned flags);
    void* (*pmem_memset)(void* to, int byte, size_t length, unsigned flags);
    void (*pmem_flush)(const void* address, size_t length);
    void (*pmem_drain)();

    /// The operating system's and libpmem's own.
    static const SystemCalls& real() noexcept;
};

}  // namespace frostline
