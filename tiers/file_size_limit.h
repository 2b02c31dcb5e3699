// The limit of the shell's `ulimit -f`. A file that would exceed it ends the program by a signal,
// unless one looks first.
#pragma once

#include <sys/resource.h>

#include <cstdint>

namespace frostline {

/// The most bytes that a file of this process may have; UINT64_MAX where there is no limit.
inline std::uint64_t file_size_limit_bytes() noexcept {
    rlimit limit = {};
    if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
        return UINT64_MAX;
    }
    return limit.rlim_cur;
}

}  // namespace frostline
