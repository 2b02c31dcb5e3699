// Proves that a heap of host memory keeps what lies in its blocks, takes no memory that it does not
// have blocks in, lies where it was told to, and meets the system's limits with an error.
#include "allocator/host_heap.h"
#include "tests/allocator/host_heap_fixture.h"
#include "tests/tiers/faulty_system_calls.h"
#include "tests/tiers/process_state.h"
#include "tests/tiers/scratch_folder.h"
#include "tiers/numa_placement.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

namespace frostline {
namespace {

// Asks the kernel, which says so instead of ending the program.
bool readable(const void* address) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    const bool could = ::write(ends[1], address, 1) == 1;
    EXPECT_TRUE(could || errno == EFAULT);
    ::close(ends[0]);
    ::close(ends[1]);
    return could;
}

// A limit of this process, for a scope.
class Limit {
   public:
    Limit(int which, std::uint64_t bytes) : which_(which) {
        EXPECT_EQ(::getrlimit(which_, &before_), 0);
        rlimit limit = before_;
        limit.rlim_cur = bytes;
        EXPECT_EQ(::setrlimit(which_, &limit), 0);
    }
    Limit(const Limit&) = delete;
    Limit& operator=(const Limit&) = delete;
    ~Limit() { EXPECT_EQ(::setrlimit(which_, &before_), 0); }

   private:
    int which_;
    rlimit before_{};
};

TEST(HostHeap, BlocksKeepTheirContentWhileOthersComeAndGo) {
    const auto heap = make({.capacity_bytes = 64 * kMiB});
    struct Living {
        std::byte* address;
        std::uint64_t size_bytes;
        std::byte value;
    };
    std::vector<Living> living;
    std::mt19937 random(3);
    const auto end = [&](std::size_t index) {
        const Living block = living[index];
        living[index] = living.back();
        living.pop_back();
        const std::vector<std::byte> expected(block.size_bytes, block.value);
        ASSERT_EQ(std::memcmp(block.address, expected.data(), block.size_bytes), 0);
        ASSERT_TRUE(heap->free(block.address, block.size_bytes).has_value());
    };
    for (int i = 0; i < 3000; ++i) {
        constexpr std::uint64_t kMost[] = {64, 3000, 40'000, 400'000, 6 * kMiB};
        const std::uint64_t size = 1 + random() % kMost[random() % 5];
        const auto block = heap->allocate(size);
        if (!block) {
            ASSERT_EQ(block.error().code(), Errc::no_space) << block.error().message();
        } else {
            const auto value = static_cast<std::byte>(random());
            std::memset(*block, static_cast<int>(value), size);
            living.push_back({static_cast<std::byte*>(*block), size, value});
        }
        if (!block || random() % 2 == 0) end(random() % living.size());
    }
    while (!living.empty()) end(0);
    heap->check();
    EXPECT_LE(heap->statistics().peak_mapped, 64 * kMiB);
}

TEST(HostHeap, BlocksLieAtMultiplesOfTheirAlignment) {
    const auto heap = make({.capacity_bytes = 64 * kMiB});
    for (std::uint64_t alignment = 1; alignment <= 2 * kMiB; alignment *= 2) {
        for (const std::uint64_t size : {std::uint64_t{1}, std::uint64_t{5000}, kMiB}) {
            std::byte* const block = must_allocate(*heap, size, alignment);
            EXPECT_EQ(reinterpret_cast<std::uint64_t>(block) % alignment, 0U) << alignment;
            std::memset(block, 1, size);
        }
    }
    EXPECT_EQ(heap->allocate(8, 0, 48).error().code(), Errc::invalid_argument);
}

TEST(HostHeap, MemoryThatWasGivenBackIsGone) {
    const auto heap = make({.capacity_bytes = 64 * kMiB});
    std::byte* const block = must_allocate(*heap, 16 * kMiB);
    std::memset(block, 1, 16 * kMiB);
    EXPECT_EQ(resident_bytes(block, 16 * kMiB), 16 * kMiB);
    ASSERT_TRUE(heap->free(block).has_value());
    EXPECT_EQ(heap->trim().value_or(0), 16 * kMiB);
    EXPECT_EQ(resident_bytes(block, 16 * kMiB), 0U);
    EXPECT_FALSE(readable(block)) << "whoever uses it all the same is stopped";
    std::byte* const again = must_allocate(*heap, 16 * kMiB);
    std::memset(again, 2, 16 * kMiB);
    EXPECT_TRUE(readable(again));
}

TEST(HostHeap, AddressesTakeNoMemory) {
    const auto heap = make({});
    EXPECT_GT(heap->backing().capacity_bytes(), 64 * kMiB) << "all memory of the machine";
    EXPECT_EQ(heap->statistics().mapped, 0U);
    EXPECT_EQ(mapping_bytes(reinterpret_cast<void*>(heap->backing().addresses().address), "Rss"),
              0U);
    std::memset(must_allocate(*heap, 3 * kMiB), 1, 3 * kMiB);
    EXPECT_EQ(heap->statistics().mapped, 4 * kMiB);
}

TEST(HostHeap, InAContainerItHasWhatTheContainerHas) {
    const ScratchFolder folder;
    const auto write = [&](const std::string& file, const std::string& text) {
        const std::filesystem::path path = folder.path() + file;
        std::filesystem::create_directories(path.parent_path());
        std::ofstream(path) << text;
    };
    write("/proc/self/cgroup", "0::/job\n");
    write("/proc/self/mountinfo", "29 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    write("/sys/fs/cgroup/job/memory.max", std::to_string(7 * kMiB) + "\n");
    const auto backing = HostBacking::create({.root = folder.path()});
    ASSERT_TRUE(backing.has_value()) << backing.error().message();
    EXPECT_EQ((*backing)->capacity_bytes(), 6 * kMiB) << "in whole chunks";
}

TEST(HostHeap, WhatCannotBeDoneIsRefusedByName) {
    EXPECT_EQ(make_host_heap({.capacity_bytes = kMiB}).error().code(), Errc::invalid_argument);
    EXPECT_EQ(make_host_heap({.capacity_bytes = 8 * kMiB, .chunk_bytes = 3 * kMiB}).error().code(),
              Errc::invalid_argument);
    EXPECT_EQ(make_host_heap({.capacity_bytes = 8 * kMiB, .chunk_bytes = 4096}).error().code(),
              Errc::invalid_argument);
    EXPECT_EQ(make_host_heap({.capacity_bytes = 8 * kMiB, .numa_node = 99}).error().code(),
              Errc::invalid_argument);
    EXPECT_EQ(make_host_heap({.capacity_bytes = std::uint64_t{1} << 60}).error().code(),
              Errc::invalid_argument);
}

// AddressSanitizer itself has more addresses than any limit.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(HostHeap, AProcessThatMayHaveNoMoreAddressesGetsAnErrorThatSaysSo) {
    const Limit limit(RLIMIT_AS, std::uint64_t{8} << 30);
    const auto fewer = make_host_heap({.capacity_bytes = std::uint64_t{2} << 30});
    ASSERT_TRUE(fewer.has_value()) << fewer.error().message();
    EXPECT_LT((*fewer)->statistics().reserved, std::uint64_t{8} << 30);
    const auto none = make_host_heap({.capacity_bytes = std::uint64_t{16} << 30});
    ASSERT_FALSE(none.has_value());
    EXPECT_EQ(none.error().code(), Errc::no_space);
    EXPECT_NE(std::string(none.error().message()).find("ulimit -v"), std::string::npos)
        << none.error().message();
}

TEST(HostHeap, AProcessThatMayHaveNoMoreMemoryGetsAnErrorThatSaysSo) {
    const auto heap = make({.capacity_bytes = 1024 * kMiB});
    std::byte* const before = must_allocate(*heap, 4 * kMiB);
    {
        const Limit limit(RLIMIT_DATA, 16 * kMiB);
        const auto block = heap->allocate(512 * kMiB);
        ASSERT_FALSE(block.has_value());
        EXPECT_EQ(block.error().code(), Errc::no_space);
        EXPECT_NE(std::string(block.error().message()).find("Cannot allocate memory"),
                  std::string::npos)
            << block.error().message();
    }
    std::memset(must_allocate(*heap, 512 * kMiB), 1, 4096);
    std::memset(before, 1, 4 * kMiB);
}
#endif

TEST(HostHeap, SystemCallsThatFailAreErrorsOrDoNoHarm) {
    const auto open = [] {
        return HostBacking::create({.capacity_bytes = 16 * kMiB, .calls = &faulty_system_calls()});
    };
    {
        const FaultInjection fault({.call = Call::mmap, .error = EPERM, .from_then_on = true});
        EXPECT_EQ(open().error().code(), Errc::permission);
    }
    {
        const FaultInjection fault({.call = Call::mmap, .error = ENOMEM});
        EXPECT_TRUE(open().has_value()) << "fewer addresses will do";
    }
    {
        const FaultInjection fault({.call = Call::madvise});
        EXPECT_TRUE(open().has_value()) << "huge pages are for speed";
    }
    const auto heap = *HostHeap::create(*open(), {});
    {
        const FaultInjection fault({.call = Call::mprotect, .error = ENOMEM, .from_then_on = true});
        const auto block = heap->allocate(kMiB);
        ASSERT_FALSE(block.has_value());
        EXPECT_EQ(block.error().code(), Errc::no_space);
    }
    std::byte* const block = must_allocate(*heap, 2 * kMiB);
    std::memset(block, 1, 2 * kMiB);
    ASSERT_TRUE(heap->free(block).has_value());
    {
        const FaultInjection fault({.call = Call::madvise, .from_then_on = true});
        EXPECT_FALSE(heap->trim().has_value());
        EXPECT_EQ(heap->trim().value_or(1), 0U) << "it was told already";
    }
    EXPECT_EQ(heap->statistics().mapped, 2 * kMiB) << "what was not taken back counts";
    EXPECT_EQ(must_allocate(*heap, 2 * kMiB), block) << "and is used again";
    ASSERT_TRUE(heap->free(block).has_value());
    {
        const FaultInjection fault({.call = Call::mprotect});
        EXPECT_EQ(heap->trim().value_or(0), 2 * kMiB) << "it takes up nothing all the same";
    }
    EXPECT_EQ(resident_bytes(block, 2 * kMiB), 0U);
    heap->check();
}

TEST(HostHeap, LockedMemoryStaysWithTheHeapAndTheRestGoes) {
    const auto heap = make({.capacity_bytes = 64 * kMiB});
    std::byte* const block = must_allocate(*heap, 16 * kMiB);
    std::memset(block, 1, 16 * kMiB);
    // Not mlock(), which the sanitizers make do nothing.
    ASSERT_EQ(::syscall(SYS_mlock, block + 7 * kMiB, 4096), 0);
    ASSERT_TRUE(heap->free(block).has_value());
    const auto trimmed = heap->trim();
    ASSERT_FALSE(trimmed.has_value());
    EXPECT_NE(std::string(trimmed.error().message()).find("mlock"), std::string::npos)
        << trimmed.error().message();
    EXPECT_EQ(heap->statistics().mapped, 2 * kMiB);
    EXPECT_EQ(heap->statistics().free, 2 * kMiB);
    EXPECT_EQ(heap->trim().value_or(1), 0U) << "it was told already";
    EXPECT_EQ(must_allocate(*heap, 2 * kMiB), block + 6 * kMiB);
    std::byte* const other = must_allocate(*heap, 16 * kMiB);
    std::memset(other, 2, 16 * kMiB);
    ASSERT_TRUE(heap->free(other).has_value());
    EXPECT_EQ(heap->trim().value_or(0), 16 * kMiB);
    ASSERT_EQ(::syscall(SYS_munlock, block + 7 * kMiB, 4096), 0);
    ASSERT_TRUE(heap->free(block + 6 * kMiB).has_value());
    EXPECT_EQ(heap->trim().value_or(0), 2 * kMiB) << "a trim asks again";
    heap->check();
}

TEST(HostHeap, MemoryLiesOnTheNodeThatWasNamed) {
    const auto topology = Topology::create();
    ASSERT_TRUE(topology.has_value());
    for (const NumaNode& node : topology->nodes()) {
        if (node.memory_bytes == 0) continue;
        const auto heap = make({.capacity_bytes = 16 * kMiB, .numa_node = node.id});
        std::byte* const block = must_allocate(*heap, 3 * kMiB);
        std::memset(block, 1, 3 * kMiB);
        const auto placed = placement_of(SystemCalls::real(), {block, 3 * kMiB});
        ASSERT_TRUE(placed.has_value()) << placed.error().message();
        EXPECT_EQ(placed->bytes_on(node.id), 3 * kMiB);
    }
}

TEST(HostHeap, AForkedChildHasTheContentAndMayNotUseTheHeap) {
    auto heap = make({.capacity_bytes = 16 * kMiB});
    std::byte* const block = must_allocate(*heap, 3 * kMiB);
    std::memset(block, 7, 3 * kMiB);
    const pid_t child = ::fork();
    if (child == 0) {
        bool right = block[0] == std::byte{7} && block[3 * kMiB - 1] == std::byte{7};
        right &= heap->allocate(100).error().code() == Errc::busy;
        right &= heap->free(block).error().code() == Errc::busy;
        std::memset(block, 8, 3 * kMiB);
        heap.reset();
        ::_exit(right ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(block[0], std::byte{7});
    EXPECT_TRUE(heap->free(block).has_value());
}

}  // namespace
}  // namespace frostline
