// The calls of the table, by name, for tests that make one of them fail.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace frostline {

enum class Call : std::uint8_t {
    none,
    open,
    mkostemp,
    unlink,
    close,
    fstat,
    fstatvfs,
    fstatfs,
    flock,
    posix_fallocate,
    ftruncate,
    fallocate,
    block_device_size,
    pread,
    pwrite,
    mmap,
    munmap,
    mprotect,
    madvise,
    mbind,
    move_pages,
    get_mempolicy,
    set_mempolicy,
    sched_setaffinity,
    getcpu,
    uring_init,
    uring_register_files,
    uring_register_buffers,
    uring_submit_and_wait,
    uring_result,
    pmem_map_file,
    pmem_unmap,
    pmem_msync,
    pmem_memcpy,
    pmem_memset,
    pmem_flush,
    pmem_drain,
};
inline constexpr std::size_t kCalls = 37;

constexpr std::string_view name(Call call) noexcept {
    constexpr std::array<std::string_view, kCalls> kNames{"none",
                                                          "open",
                                                          "mkostemp",
                                                          "unlink",
                                                          "close",
                                                          "fstat",
                                                          "fstatvfs",
                                                          "fstatfs",
                                                          "flock",
                                                          "posix_fallocate",
                                                          "ftruncate",
                                                          "fallocate",
                                                          "block_device_size",
                                                          "pread",
                                                          "pwrite",
                                                          "mmap",
                                                          "munmap",
                                                          "mprotect",
                                                          "madvise",
                                                          "mbind",
                                                          "move_pages",
                                                          "get_mempolicy",
                                                          "set_mempolicy",
                                                          "sched_setaffinity",
                                                          "getcpu",
                                                          "uring_init",
                                                          "uring_register_files",
                                                          "uring_register_buffers",
                                                          "uring_submit_and_wait",
                                                          "uring_result",
                                                          "pmem_map_file",
                                                          "pmem_unmap",
                                                          "pmem_msync",
                                                          "pmem_memcpy",
                                                          "pmem_memset",
                                                          "pmem_flush",
                                                          "pmem_drain"};
    return kNames[static_cast<std::size_t>(call)];
}

}  // namespace frostline
