// The real table: the operating system's calls and libpmem's.
#include "tiers/system_calls.h"

#include <fcntl.h>
#include <libpmem.h>
#include <stdlib.h>
#include <sys/file.h>
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
        .flock = ::flock,
        .posix_fallocate = ::posix_fallocate,
        .pread = ::pread,
        .pwrite = ::pwrite,
        .mmap = ::mmap,
        .munmap = ::munmap,
        .madvise = ::madvise,
        .pmem_map_file = ::pmem_map_file,
        .pmem_unmap = ::pmem_unmap,
        .pmem_msync = ::pmem_msync,
    };
    return kReal;
}

}  // namespace frostline
