// Proves that a heap of host memory is page-locked as far as it says, each block by one
// registration, so that one copy of a GPU takes it.
#include "allocator/host_heap.h"
#include "tests/allocator/host_heap_fixture.h"
#include "tests/tiers/emulated_gpu.h"
#include "tests/tiers/process_state.h"
#include "tests/tiers/registered_memory.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace frostline {
namespace {

class PinnedHostHeap : public testing::Test {
   protected:
    std::uint64_t registered(const std::byte* start, std::uint64_t size_bytes) const {
        return registered_bytes(gpu_->driver(), {start, size_bytes});
    }
    EmulatedGpu gpu_{"memory=16MiB"};
};

TEST_F(PinnedHostHeap, ChunksAreRegisteredAsLongAsTheHeapHasThem) {
    const auto heap = make({.capacity_bytes = 32 * kMiB, .pin = gpu_->context()});
    EXPECT_EQ(heap->statistics().pinned, 0U);
    std::byte* const block = must_allocate(*heap, 5 * kMiB);
    EXPECT_EQ(registered(block, 5 * kMiB), 5 * kMiB);
    EXPECT_EQ(heap->statistics().pinned, 6 * kMiB);
    EXPECT_EQ(heap->statistics().mapped, 6 * kMiB);
    std::memset(block, 1, 5 * kMiB);
    EXPECT_EQ(heap->backing().registration()->piece_from(block).size_bytes, 6 * kMiB);
    ASSERT_TRUE(heap->free(block).has_value());
    ASSERT_TRUE(heap->trim().has_value());
    EXPECT_EQ(heap->statistics().pinned, 0U);
    EXPECT_EQ(registered(block, 5 * kMiB), 0U);
    EXPECT_EQ(resident_bytes(block, 4 * kMiB), 0U);
    EXPECT_NE(must_allocate(*heap, 100), nullptr);  // is left to the heap's end
}

TEST_F(PinnedHostHeap, OneCopyTakesAnyBlockWhateverCameAndWentBefore) {
    const auto heap = make({.capacity_bytes = 64 * kMiB, .pin = gpu_->context()});
    const auto context = gpu_->context();
    const CudaDriver& driver = gpu_->driver();
    CUdeviceptr target = 0;
    const auto on_gpu = [&](auto&& call) {
        const Result<void> done = context->run([&] { return driver.check("a copy", call()); });
        EXPECT_TRUE(done.has_value()) << done.error().message();
    };
    on_gpu([&] { return driver.cuMemAlloc(&target, 12 * kMiB); });
    std::vector<std::byte*> living;
    std::mt19937 random(8);
    for (int i = 0; i < 400; ++i) {
        constexpr std::uint64_t kMost[] = {3000, 100'000, 3 * kMiB, 12 * kMiB};
        const std::uint64_t size = 1 + random() % kMost[random() % 4];
        const auto block = heap->allocate(size);
        if (block) {
            living.push_back(static_cast<std::byte*>(*block));
            EXPECT_EQ(registered_pieces(driver, {living.back(), size}).size(), 1U) << size;
            EXPECT_EQ(registered(living.back(), size), size);
            on_gpu([&] { return driver.cuMemcpyHtoDAsync(target, *block, size, nullptr); });
        }
        while (!living.empty() && (!block || random() % 2 == 0)) {
            std::swap(living[random() % living.size()], living.back());
            on_gpu([&] { return driver.cuStreamSynchronize(nullptr); });
            ASSERT_TRUE(heap->free(living.back()).has_value());
            living.pop_back();
            if (random() % 2 == 0) break;
        }
        if (i % 50 == 0) {
            ASSERT_TRUE(heap->trim().has_value());
        }
        EXPECT_EQ(heap->statistics().pinned, heap->statistics().mapped);
        heap->check();
    }
    on_gpu([&] { return driver.cuStreamSynchronize(nullptr); });
    for (std::byte* const block : living) ASSERT_TRUE(heap->free(block).has_value());
    ASSERT_TRUE(heap->trim().has_value());
    EXPECT_EQ(heap->statistics().pinned, 0U);
    EXPECT_EQ(heap->statistics().mapped, 0U);
    on_gpu([&] { return driver.cuMemFree(target); });
}

TEST_F(PinnedHostHeap, AForkedChildEndsItWithoutTheDriver) {
    auto heap = make({.capacity_bytes = 32 * kMiB, .pin = gpu_->context()});
    std::byte* const block = must_allocate(*heap, 2 * kMiB);
    std::memset(block, 7, 2 * kMiB);
    const pid_t child = ::fork();
    if (child == 0) {
        const bool right = block[2 * kMiB - 1] == std::byte{7};
        heap.reset();
        ::_exit(right ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(registered(block, 2 * kMiB), 2 * kMiB);
}

TEST_F(PinnedHostHeap, WhatTheDriverRefusesIsAnErrorAndTheHeapWorksOn) {
    const auto heap = make({.capacity_bytes = 32 * kMiB, .pin = gpu_->context()});
    // At the first try, and at the one that follows when all else is given up.
    for (const unsigned nth : {1U, 2U}) {
        gpu_->plant_fault("cuMemHostRegister", nth, CUDA_ERROR_OUT_OF_MEMORY);
    }
    const auto refused = heap->allocate(5 * kMiB);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code(), Errc::no_space);
    EXPECT_NE(std::string(refused.error().message()).find("cuMemHostRegister"), std::string::npos)
        << refused.error().message();
    EXPECT_EQ(heap->statistics().pinned, 0U);
    std::byte* const block = must_allocate(*heap, 2 * kMiB);
    std::memset(block, 1, 2 * kMiB);
    ASSERT_TRUE(heap->free(block).has_value());
    for (const unsigned nth : {1U, 2U}) {
        gpu_->plant_fault("cuMemHostUnregister", nth, CUDA_ERROR_UNKNOWN);
    }
    EXPECT_FALSE(heap->trim().has_value());
    EXPECT_EQ(heap->statistics().pinned, 2 * kMiB) << "it is locked still, and counts";
    EXPECT_EQ(heap->statistics().mapped, 2 * kMiB);
    EXPECT_NE(must_allocate(*heap, 2 * kMiB), block);
    EXPECT_EQ(make_host_heap({.capacity_bytes = 32 * kMiB,
                              .chunk_bytes = std::uint64_t{64} << 10,
                              .pin = gpu_->context()})
                  .error()
                  .code(),
              Errc::invalid_argument);
}

}  // namespace
}  // namespace frostline
