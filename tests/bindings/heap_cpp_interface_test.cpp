// Proves the C++ faces of host heaps: containers of the standard library live in them, as its rules
// for allocators have it, and buffers are owned by exactly one.
#include "frostline/allocator.h"
#include "frostline/memory_resource.h"
#include "frostline/tensor_buffer.h"
#include "tests/tiers/scratch_folder.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <new>
#include <scoped_allocator>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace frostline {
namespace {

constexpr std::size_t kMi = std::size_t{1} << 20;

HostMemory open(std::uint64_t capacity_bytes = 64 * kMi) {
    auto memory = HostMemory::open({.name = "memory", .capacity_bytes = capacity_bytes});
    if (!memory) {
        ADD_FAILURE() << memory.failure().message();
        std::abort();
    }
    return *std::move(memory);
}

std::uint64_t live_blocks(const HostMemory& memory) {
    return memory.statistics()->live_blocks;
}

TEST(CppHostMemory, SaysWhyItCannotBeOpened) {
    const auto memory = HostMemory::open({.chunk_bytes = 100});
    ASSERT_FALSE(memory.has_value());
    EXPECT_EQ(memory.failure().status(), FROSTLINE_INVALID_ARGUMENT);
    EXPECT_STRNE(memory.failure().message(), "");
    EXPECT_THROW((void)memory->statistics(), std::bad_variant_access);
}

TEST(CppHostMemory, AValueThatIsNotThereSaysWhy) {
    HostMemory memory = open();
    auto block = memory.allocate(65 * kMi);
    try {
        (void)*block;
        FAIL() << "there is a value";
    } catch (const std::exception& thrown) {
        EXPECT_STREQ(thrown.what(), block.failure().message());
    }
    EXPECT_THROW((void)*memory.allocate(65 * kMi), NoValue);
    EXPECT_THROW((void)*std::as_const(block), NoValue);
    EXPECT_THROW((void)memory.allocate(kMi, 3).operator->(), NoValue);
    block = memory.allocate(kMi);
    EXPECT_THROW((void)block.failure(), std::bad_variant_access);
    EXPECT_TRUE(memory.free(*block));
}

TEST(CppHostMemory, HandsOutAndTakesBack) {
    HostMemory memory = open();
    const auto block = memory.allocate(3 * kMi, 4096);
    ASSERT_TRUE(block);
    std::memset(*block, 7, 3 * kMi);
    EXPECT_EQ(*memory.size_bytes(*block), 3 * kMi);
    EXPECT_TRUE(memory.owns(*block));
    EXPECT_FALSE(memory.owns(&memory));
    EXPECT_EQ(memory.free(*block, 5).failure().status(), FROSTLINE_INVALID_ARGUMENT);
    EXPECT_EQ(memory.close().failure().status(), FROSTLINE_BUSY);
    EXPECT_TRUE(memory.free(*block));
    EXPECT_EQ(memory.free(*block).failure().status(), FROSTLINE_INVALID_ARGUMENT);
    EXPECT_GT(*memory.trim(), 0U);
    EXPECT_EQ(memory.statistics()->mapped_bytes, 0U);
    EXPECT_TRUE(memory.close());
}

TEST(CppHostMemory, CanBeMovedUnderWhatAllocatesFromIt) {
    HostMemory first = open();
    std::vector<int, allocator<int>> numbers(100, 5, allocator<int>(first));
    HostMemory second = std::move(first);
    numbers.resize(10'000, 6);
    EXPECT_EQ(live_blocks(second), 1U);
    HostMemory third = open();
    third = std::move(second);
    numbers.resize(20'000, 7);
    EXPECT_EQ(live_blocks(third), 1U);
    EXPECT_EQ(numbers[99] + numbers[9'999] + numbers[19'999], 18);
}

TEST(CppHostMemory, MemoryInUseOutlivesItsOwner) {
    std::unique_ptr<std::vector<int, allocator<int>>> numbers;
    {
        const HostMemory memory = open();
        numbers =
            std::make_unique<std::vector<int, allocator<int>>>(1000, 5, allocator<int>(memory));
    }
    EXPECT_EQ((*numbers)[999], 5);
    numbers->resize(100'000, 6);
    EXPECT_EQ((*numbers)[99'999], 6);
}

TEST(CppHostMemory, WritesATraceOfBirthsAndDeaths) {
    const ScratchFolder folder;
    auto memory = HostMemory::open({.capacity_bytes = 8 * kMi, .reports = {.trace = true}});
    ASSERT_TRUE(memory);
    void* const block = *memory->allocate(1000);
    EXPECT_TRUE(memory->begin_step());
    EXPECT_TRUE(memory->free(block));
    const std::string path = folder.file("trace");
    ASSERT_TRUE(memory->write_trace(path.c_str()));
    std::ifstream file(path);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    EXPECT_EQ(text, "frostline-allocs 1\na 1 1000\nstep\nf 1\n");
    std::filesystem::remove(path);
    EXPECT_EQ(open().write_trace(path.c_str()).failure().status(), FROSTLINE_UNSUPPORTED);
}

// Runs in a process of its own, which ends with what its threads left.
[[noreturn]] void end_with_a_leak(bool reports) {
    static auto memory = HostMemory::open(
        {.name = "leaky", .capacity_bytes = 8 * kMi, .reports = {.leaks = reports}});
    (void)memory->allocate(12345);
    std::exit(7);
}

TEST(CppHostMemoryDeathTest, SaysAtTheEndWhatStillLives) {
    EXPECT_EXIT(end_with_a_leak(true), testing::ExitedWithCode(7),
                "frostline: leaky: allocation 1 .*12345 bytes.*\nfrostline: leaky: 1 allocations.*"
                "opened with debug");
    EXPECT_EXIT(end_with_a_leak(false), testing::ExitedWithCode(7), "^$");
}

TEST(CppMemoryResource, HoldsPolymorphicContainers) {
    HostMemory memory = open();
    {
        memory_resource resource(memory);
        std::pmr::map<int, std::pmr::string> words(&resource);
        for (int i = 0; i < 1000; ++i) {
            words.emplace(i, "a text that is too long to lie in the string itself");
        }
        EXPECT_GE(live_blocks(memory), 2000U);
        EXPECT_TRUE(memory.owns(&words.find(500)->second));
        EXPECT_TRUE(memory.owns(words.find(500)->second.data()));
        std::pmr::vector<double> numbers({1.0, 2.0}, &resource);
        numbers.resize(kMi);
        EXPECT_EQ(numbers[0] + numbers[1] + numbers[2], 3.0);
    }
    EXPECT_EQ(live_blocks(memory), 0U);
}

TEST(CppMemoryResource, IsAPoolsSource) {
    HostMemory memory = open();
    {
        memory_resource resource(memory);
        std::pmr::synchronized_pool_resource pool(&resource);
        std::vector<std::thread> threads;
        for (int t = 0; t < 3; ++t) {
            threads.emplace_back([&pool, t] {
                std::pmr::list<int> numbers(&pool);
                for (int i = 0; i < 5000; ++i) numbers.push_back(t);
                for (const int number : numbers) EXPECT_EQ(number, t);
            });
        }
        for (std::thread& thread : threads) thread.join();
    }
    EXPECT_EQ(live_blocks(memory), 0U);
}

TEST(CppMemoryResource, IsEqualToThoseOfTheSameHeap) {
    HostMemory memory = open();
    HostMemory elsewhere = open();
    const memory_resource one(memory);
    const memory_resource same(memory);
    const memory_resource other(elsewhere);
    EXPECT_TRUE(one.is_equal(same));
    EXPECT_FALSE(one.is_equal(other));
    EXPECT_FALSE(one.is_equal(*std::pmr::new_delete_resource()));
}

TEST(CppMemoryResource, KeepsAnyAlignmentAndGivesNoBytesAnAddress) {
    HostMemory memory = open();
    memory_resource resource(memory);
    for (std::size_t alignment = 1; alignment <= 2 * kMi; alignment *= 2) {
        void* const block = resource.allocate(100, alignment);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % alignment, 0U);
        resource.deallocate(block, 100, alignment);
    }
    void* const one = resource.allocate(0);
    void* const other = resource.allocate(0);
    EXPECT_NE(one, nullptr);
    EXPECT_NE(one, other);
    resource.deallocate(one, 0);
    resource.deallocate(other, 0);
    EXPECT_EQ(live_blocks(memory), 0U);
}

TEST(CppMemoryResource, ThrowsBadAllocWhenThereIsNoRoom) {
    HostMemory memory = open(8 * kMi);
    memory_resource resource(memory);
    EXPECT_THROW((void)resource.allocate(9 * kMi), std::bad_alloc);
    const volatile std::size_t everything = SIZE_MAX;  // which the compiler must not see
    EXPECT_THROW((void)resource.allocate(everything), std::bad_alloc);
    EXPECT_THROW((void)resource.allocate(100, 4 * kMi), std::bad_alloc);
    EXPECT_NE(std::strstr(frostline_last_error(), "memory"), nullptr);
    std::pmr::vector<char> bytes(5 * kMi, 'b', &resource);
    EXPECT_THROW(bytes.resize(6 * kMi), std::bad_alloc);
    EXPECT_EQ(bytes.size(), 5 * kMi);
    EXPECT_EQ(bytes.back(), 'b');
}

TEST(CppMemoryResource, ReportsWhatItDoesNotTakeBack) {
    HostMemory memory = open();
    memory_resource resource(memory);
    void* const block = resource.allocate(100);
    testing::internal::CaptureStderr();
    resource.deallocate(block, 99);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("frostline: not freed:"), std::string::npos) << said;
    EXPECT_NE(said.find("100 bytes"), std::string::npos) << said;
    EXPECT_EQ(live_blocks(memory), 1U);
    resource.deallocate(block, 100);
    testing::internal::CaptureStderr();
    resource.deallocate(block, 100);
    EXPECT_NE(testing::internal::GetCapturedStderr().find("freed"), std::string::npos);
}

TEST(CppAllocator, IsEqualToThoseOfTheSameHeapWhateverTheirType) {
    const HostMemory memory = open();
    const HostMemory elsewhere = open();
    const allocator<int> one(memory);
    EXPECT_TRUE(one == allocator<int>(memory));
    EXPECT_TRUE(one == allocator<double>(memory));
    EXPECT_TRUE(one == allocator<int>(allocator<std::string>(one)));
    EXPECT_TRUE(one != allocator<int>(elsewhere));
}

template <class T>
using Vector = std::vector<T, allocator<T>>;

TEST(CppAllocator, GoesAlongWithMovesAndSwapsAndStaysWithCopies) {
    HostMemory memory = open();
    HostMemory elsewhere = open();
    const allocator<int> here(memory);
    const allocator<int> there(elsewhere);
    Vector<int> source(1000, 1, here);
    const int* const data = source.data();

    Vector<int> target(10, 2, there);
    target = source;
    EXPECT_TRUE(target.get_allocator() == there);
    EXPECT_TRUE(elsewhere.owns(target.data()));
    target = std::move(source);
    EXPECT_TRUE(target.get_allocator() == here);
    EXPECT_EQ(target.data(), data) << "a move copied";
    Vector<int> other(10, 3, there);
    swap(other, target);
    EXPECT_EQ(other.data(), data);
    EXPECT_TRUE(other.get_allocator() == here);
    EXPECT_TRUE(target.get_allocator() == there);
    const Vector<int> copy(other);
    EXPECT_TRUE(copy.get_allocator() == here);
    const Vector<int> moved(std::move(other), there);
    EXPECT_EQ(moved, copy);
    EXPECT_TRUE(elsewhere.owns(moved.data()));
}

struct alignas(4096) Page {
    char bytes[4096];
};

TEST(CppAllocator, AlignsWhatIsOverAligned) {
    HostMemory memory = open();
    Vector<Page> pages{allocator<Page>(memory)};
    for (int i = 0; i < 100; ++i) {
        pages.push_back({});
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pages.data()) % 4096, 0U);
    }
    std::list<Page, allocator<Page>> nodes{allocator<Page>(memory)};
    for (int i = 0; i < 100; ++i) {
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(&nodes.emplace_back()) % 4096, 0U);
    }
}

TEST(CppAllocator, ThrowsWhatTheStandardNames) {
    HostMemory memory = open(8 * kMi);
    allocator<std::uint64_t> numbers(memory);
    EXPECT_THROW((void)numbers.allocate(std::numeric_limits<std::size_t>::max() / 8 + 1),
                 std::bad_array_new_length);
    EXPECT_THROW((void)numbers.allocate(2 * kMi), std::bad_alloc);
    EXPECT_EQ(live_blocks(memory), 0U);
}

TEST(CppAllocator, ReachesTheInnerContainers) {
    HostMemory memory = open();
    using Text = std::basic_string<char, std::char_traits<char>, allocator<char>>;
    using Outer = std::scoped_allocator_adaptor<allocator<Text>>;
    std::vector<Text, Outer> texts{Outer(allocator<Text>(memory))};
    texts.emplace_back("a text that is too long to lie in the string itself");
    EXPECT_TRUE(memory.owns(texts[0].data()));
}

static_assert(!std::is_copy_constructible_v<TensorBuffer>);
static_assert(!std::is_copy_assignable_v<TensorBuffer>);
static_assert(std::is_nothrow_move_constructible_v<TensorBuffer>);
static_assert(std::is_nothrow_move_assignable_v<TensorBuffer>);

TEST(CppTensorBuffer, IsOwnedByExactlyOne) {
    HostMemory memory = open();
    auto made = TensorBuffer::create(memory, kMi, 4096);
    ASSERT_TRUE(made);
    TensorBuffer first = *std::move(made);
    void* const data = first.data();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % 4096, 0U);
    EXPECT_EQ(first.size_bytes(), kMi);
    EXPECT_EQ(first.stream(), nullptr);
    std::memset(data, 1, kMi);

    TensorBuffer second(std::move(first));
    EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move): what is left is empty
    EXPECT_EQ(first.data(), nullptr);
    EXPECT_EQ(first.size_bytes(), 0U);
    EXPECT_EQ(second.data(), data);
    TensorBuffer third = *TensorBuffer::create(memory, 100);
    EXPECT_EQ(live_blocks(memory), 2U);
    third = std::move(second);
    EXPECT_EQ(live_blocks(memory), 1U) << "what it held before is freed";
    EXPECT_EQ(third.data(), data);
    TensorBuffer& same = third;
    third = std::move(same);
    EXPECT_EQ(third.data(), data);
    EXPECT_EQ(memory.close().failure().status(), FROSTLINE_BUSY);
    third.reset();
    EXPECT_EQ(live_blocks(memory), 0U);
}

TEST(CppTensorBuffer, CanBeEmpty) {
    HostMemory memory = open();
    TensorBuffer nothing;
    EXPECT_FALSE(nothing);
    EXPECT_TRUE(nothing.record_stream(nullptr));
    nothing.reset();
    const auto made = TensorBuffer::create(memory, 0);
    ASSERT_TRUE(made);
    EXPECT_FALSE(*made);
    EXPECT_EQ(TensorBuffer::create(memory, SIZE_MAX).failure().status(), FROSTLINE_NO_SPACE);
}

TEST(CppTensorBuffer, GivesItsBlockAway) {
    HostMemory memory = open();
    TensorBuffer buffer = *TensorBuffer::create(memory, 1000);
    void* const block = buffer.release();
    EXPECT_FALSE(buffer);
    EXPECT_EQ(live_blocks(memory), 1U);
    EXPECT_TRUE(memory.free(block, 1000));
}

// How often a child that goes on after std::bad_alloc is told why, on standard error.
void use_containers_in_a_child(const HostMemory& memory) {
    int thrown = 0;
    memory_resource resource(memory);
    for (int i = 0; i < 3; ++i) {
        try {
            std::vector<int, allocator<int>> numbers(100, 0, allocator<int>(memory));
        } catch (const std::bad_alloc&) {
            ++thrown;
        }
        try {
            std::pmr::vector<int> numbers(100, 0, &resource);
        } catch (const std::bad_alloc&) {
            ++thrown;
        }
    }
    std::fprintf(stderr, "thrown %d times\n", thrown);
    std::_Exit(0);
}

TEST(CppContainers, TellAForkedChildOnceWhyItHasNoMemory) {
    const HostMemory memory = open();
    GTEST_FLAG_SET(death_test_style, "fast");  // the child is forked, with the heap
    EXPECT_EXIT(use_containers_in_a_child(memory), testing::ExitedWithCode(0),
                "^frostline: memory belongs to [^\n]*forked child[^\n]*\nthrown 6 times\n$");
}

}  // namespace
}  // namespace frostline
