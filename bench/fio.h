// fio as the ceiling of a disk: the same blocks, depth and folder as ours, in a process of its own.
#pragma once

#include <cstdint>
#include <string>

namespace frostline::bench {

/// One job with io_uring and O_DIRECT, its buffers in huge pages, buffers and file registered.
struct FioJob {
    std::string folder;   ///< its file stays there for the next job
    std::string pattern;  ///< fio's `rw`: write, read, rw, randwrite, randread
    std::uint64_t block_bytes = 0;
    std::size_t depth = 0;
    std::uint64_t total_bytes = 0;
};

struct FioResult {
    double bytes_per_s = 0;  ///< reading and writing together
    double cpu_s = 0;        ///< of the process, user and system
};

/// Throws std::runtime_error if fio is not there or fails, with what it said.
FioResult run_fio(const FioJob& job);

}  // namespace frostline::bench
