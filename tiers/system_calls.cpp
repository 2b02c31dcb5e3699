// The real table: the operating system's calls and libpmem's.
#include "tiers/system_calls.h"

#include <fcntl.h>
#include <libpmem.h>
#include <liburing.h>
#include <linux/fs.h>
#include <numaif.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace frostline {

const SystemCalls& SystemCalls::real() noexcept {
    static constexpr SystemCalls kReal{
        // open() is variadic, which a plain function pointer cannot express.
        .open = [](const char* path, int flags, mode_t mode) { return ::open(path, flags, mode); },
        .mkostemp = ::mkostemp,
        .unlink = ::unlink,
        .close = ::close,
        .fstat = [](int fd, struct stat* out) { return ::fstat(fd, out); },
        .fstatvfs = ::fstatvfs,
        .fstatfs = [](int fd, struct statfs* out) { return ::fstatfs(fd, out); },
        .flock = ::flock,
        .posix_fallocate = ::posix_fallocate,
        .ftruncate = ::ftruncate,
        .fallocate = ::fallocate,
        .block_device_size =
            [](int fd, std::uint64_t* size_bytes) { return ::ioctl(fd, BLKGETSIZE64, size_bytes); },
        .pread = ::pread,
        .pwrite = ::pwrite,
        .mmap = ::mmap,
        .munmap = ::munmap,
        .mprotect = ::mprotect,
        .madvise = ::madvise,
        .mbind = ::mbind,
        .move_pages = ::move_pages,
        .get_mempolicy =
            [](int* mode, unsigned long* nodes, unsigned long max_node, void* address,
               unsigned long flags) {
                return ::get_mempolicy(mode, nodes, max_node, address,
                                       static_cast<unsigned>(flags));
            },
        .set_mempolicy = ::set_mempolicy,
        .sched_setaffinity = ::sched_setaffinity,
        .getcpu = ::getcpu,
        .uring_init = ::io_uring_queue_init_params,
        .uring_register_files = ::io_uring_register_files,
        .uring_register_buffers = ::io_uring_register_buffers,
        .uring_submit_and_wait = ::io_uring_submit_and_wait,
        .uring_result = [](int result) { return result; },
        .pmem_map_file = ::pmem_map_file,
        .pmem_unmap = ::pmem_unmap,
        .pmem_msync = ::pmem_msync,
        .pmem_memcpy = ::pmem_memcpy,
        .pmem_memset = ::pmem_memset,
        .pmem_flush = ::pmem_flush,
        .pmem_drain = ::pmem_drain,
    };
    return kReal;
}

}  // namespace frostline
