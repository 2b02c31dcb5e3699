// Proves that a heap is charged for the records that it has and not for those that it might have:
// what lies beyond them cannot be written, and where the system refuses more, the heap says so.
#include "allocator/heap/record_arena.h"

#include <gtest/gtest.h>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

namespace frostline {
namespace {

constexpr std::uint64_t kStep = RecordArena::kStepBytes;

struct Mapped {
    std::uint64_t writable_bytes = 0;
    std::uint64_t closed_bytes = 0;  // without any access
};

// What /proc/self/maps has from `start` on, as far as mappings touch.
Mapped mapped_from(const void* start) {
    Mapped found;
    auto next = reinterpret_cast<std::uint64_t>(start);
    const std::uint64_t end = next + (std::uint64_t{16} << 30);
    std::ifstream maps("/proc/self/maps");
    for (std::string line; next < end && std::getline(maps, line);) {
        std::istringstream in(line);
        std::uint64_t from = 0;
        std::uint64_t to = 0;
        char dash = 0;
        std::string access;
        in >> std::hex >> from >> dash >> to >> access;
        if (to <= next) continue;
        if (from > next) break;
        (access.starts_with("---") ? found.closed_bytes : found.writable_bytes) +=
            std::min(to, end) - next;
        next = to;
    }
    return found;
}

TEST(HeapRecords, OnlyWhatWasTakenCanBeWritten) {
    const auto arena = *RecordArena::create();
    const void* const start = arena->at(0);
    EXPECT_EQ(mapped_from(start).writable_bytes, 0U);
    ASSERT_NE(arena->take(1), nullptr);
    EXPECT_EQ(mapped_from(start).writable_bytes, kStep);
    EXPECT_GE(mapped_from(start).closed_bytes, std::uint64_t{16} << 20);
    constexpr std::size_t kSize = RecordArena::kLargestRecord;
    while (arena->touched_bytes() < 5 * kStep) std::memset(arena->take(kSize), 1, kSize);
    const std::uint64_t steps = (arena->touched_bytes() + kStep - 1) / kStep;
    EXPECT_EQ(mapped_from(start).writable_bytes, steps * kStep);
}

// 0, or which step went wrong.
int under_a_limit() {
    const auto arena = RecordArena::create();
    if (!arena) return 1;
    constexpr std::size_t kSize = RecordArena::kLargestRecord;
    rlimit before{};
    if (::getrlimit(RLIMIT_DATA, &before) != 0) return 2;
    // Less than what the process has: nothing more can be opened.
    const rlimit tight{1 << 16, before.rlim_max};
    if ((*arena)->take(kSize) == nullptr) return 3;
    if (::setrlimit(RLIMIT_DATA, &tight) != 0) return 4;
    std::size_t taken = 1;
    while (void* const record = (*arena)->take(kSize)) {
        std::memset(record, 1, kSize);
        if (++taken > kStep / kSize) return 5;
    }
    if (::setrlimit(RLIMIT_DATA, &before) != 0) return 6;
    void* const more = (*arena)->take(kSize);
    if (more == nullptr) return 7;
    std::memset(more, 1, kSize);
    return taken == kStep / kSize ? 0 : 8;
}

TEST(HeapRecords, WhatTheSystemRefusesIsRefusedUntilItHasMore) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) ::_exit(under_a_limit());
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0) << "that step of under_a_limit()";
}

}  // namespace
}  // namespace frostline
