// Proves that a heap of GPU memory keeps what lies in its blocks, that its windows show what they
// should, that it shares the device with others, and that it leaves nothing behind.
#include "tests/allocator/device_heap_fixture.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>

namespace frostline {
namespace {

class DeviceHeapMemory : public DeviceHeapTest {
   protected:
    CudaStream stream_ = make_stream();
    const StreamHandle handle_ = handle_of(stream_);
};

TEST_F(DeviceHeapMemory, BlocksKeepTheirContentBesideOthers) {
    const auto heap = make_heap(48 * kMiB);
    std::vector<std::pair<void*, std::uint64_t>> blocks;
    for (const std::uint64_t size :
         std::to_array<std::uint64_t>({1, 512, 4096, 9000, 70'000, 300'000, kMiB, 5 * kMiB + 3})) {
        for (int i = 0; i < 3; ++i) {
            blocks.emplace_back(must_allocate(*heap, size, handle_), size);
            fill(blocks.back().first, size, static_cast<unsigned char>(blocks.size()),
                 stream_.handle());
        }
    }
    finish(stream_.handle());
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        EXPECT_TRUE(
            all_are(content(blocks[i].first, blocks[i].second), static_cast<unsigned char>(i + 1)))
            << blocks[i].second;
    }
    for (const auto& [block, size] : blocks) {
        EXPECT_TRUE(heap->free(block, size).has_value());
    }
    heap->check();
}

TEST_F(DeviceHeapMemory, AWindowShowsThePiecesThatItIsMadeOf) {
    const auto heap = make_heap(8 * kMiB);
    std::array<void*, 4> homes{};
    for (std::size_t i = 0; i < homes.size(); ++i) {
        homes[i] = must_allocate(*heap, 2 * kMiB, handle_);
        fill(homes[i], 2 * kMiB, static_cast<unsigned char>(0xA0 + i), stream_.handle());
    }
    must_free(*heap, homes[0]);
    must_free(*heap, homes[2]);
    auto* const window = static_cast<std::byte*>(must_allocate(*heap, 4 * kMiB, handle_));
    EXPECT_EQ(heap->statistics().windows, 4 * kMiB);
    EXPECT_EQ(heap->statistics().mapped, 8 * kMiB);
    fill(window, kMiB, 1, stream_.handle());
    fill(window + kMiB, 2 * kMiB, 2, stream_.handle());  // across the seam
    fill(window + 3 * kMiB, kMiB, 3, stream_.handle());
    finish(stream_.handle());
    EXPECT_TRUE(all_are(content(window, kMiB), 1));
    EXPECT_TRUE(all_are(content(window + kMiB, 2 * kMiB), 2));
    EXPECT_TRUE(all_are(content(window + 3 * kMiB, kMiB), 3));
    EXPECT_TRUE(all_are(content(homes[1], 2 * kMiB), 0xA1)) << "a neighbour changed";
    EXPECT_TRUE(all_are(content(homes[3], 2 * kMiB), 0xA3)) << "a neighbour changed";

    must_free(*heap, window);
    for (int i = 0; i < 2; ++i) {
        void* const home = must_allocate(*heap, 2 * kMiB, handle_);
        const unsigned char seen = content(home, 1).front();
        ASSERT_TRUE(home == homes[0] || home == homes[2]);
        EXPECT_EQ(seen, home == homes[0] ? 1 : 2) << "what the window wrote lies in its pieces";
    }
    heap->check();
}

TEST_F(DeviceHeapMemory, WithRoomForItNoRequestFailsForFragmentation) {
    const auto heap = make_heap(32 * kMiB);
    std::vector<void*> blocks;
    for (int i = 0; i < 32; ++i) blocks.push_back(must_allocate(*heap, kMiB, handle_));
    for (std::size_t i = 0; i < blocks.size(); i += 4) {
        must_free(*heap, blocks[i]);
        must_free(*heap, blocks[i + 1]);
    }
    void* const large = must_allocate(*heap, 16 * kMiB, handle_);
    ASSERT_NE(large, nullptr);
    fill(large, 16 * kMiB, 9, stream_.handle());
    finish(stream_.handle());
    EXPECT_TRUE(all_are(content(large, 16 * kMiB), 9));
}

TEST_F(DeviceHeapMemory, WhatItCachesIsGivenUpBeforeAnythingFails) {
    const CudaStream second = make_stream();
    const auto heap = make_heap(56 * kMiB);
    void* const kept = must_allocate(*heap, 2 * kMiB, handle_);
    must_free(*heap, must_allocate(*heap, 30 * kMiB, handle_));
    CUdeviceptr other = 0;
    const auto take_rest = [&] {
        return context_->run([&] {
            const CudaDriver& driver = context_->driver();
            return driver.check("cuMemAlloc", driver.cuMemAlloc(&other, free_bytes_of_device()));
        });
    };
    expect_ok(take_rest());
    // The budget has room for both, the device has not.
    void* const large = must_allocate(*heap, 30 * kMiB, handle_);
    ASSERT_NE(large, nullptr);
    const auto refused = heap->allocate(8 * kMiB, handle_);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code(), Errc::no_space) << refused.error().message();
    EXPECT_NE(std::string(refused.error().message()).find("CUDA_ERROR_OUT_OF_MEMORY"),
              std::string::npos)
        << "it is the device that has no more: " << refused.error().message();
    must_free(*heap, large);
    // Of another shape, and of another stream.
    void* const small = must_allocate(*heap, 100'000, handle_of(second));
    EXPECT_NE(small, nullptr);
    expect_ok(context_->run([&] {
        const CudaDriver& driver = context_->driver();
        return driver.check("cuMemFree", driver.cuMemFree(other));
    }));
    EXPECT_NE(must_allocate(*heap, 40 * kMiB, handle_), nullptr);
    must_free(*heap, kept);
}

TEST_F(DeviceHeapMemory, TrimmingGivesTheDeviceBackToOthers) {
    const auto heap = make_heap(48 * kMiB);
    const std::uint64_t before = free_bytes_of_device();
    void* const kept = must_allocate(*heap, kMiB, handle_);
    void* const other = must_allocate(*heap, 20 * kMiB, handle_);
    fill(other, 20 * kMiB, 1, stream_.handle());
    must_free(*heap, other);
    const auto trimmed = heap->trim(true);
    ASSERT_TRUE(trimmed.has_value()) << trimmed.error().message();
    EXPECT_EQ(*trimmed, 20 * kMiB);
    EXPECT_EQ(before - free_bytes_of_device(), heap->statistics().mapped);
    EXPECT_EQ(heap->statistics().mapped, 2 * kMiB);
    must_free(*heap, kept);
}

TEST_F(DeviceHeapMemory, MemoryThatIsKeptForLaterIsInTheBooks) {
    const auto heap = make_heap(48 * kMiB);
    const std::uint64_t before = free_bytes_of_device();
    const auto expect_exact = [&](std::uint64_t cached) {
        const HeapStatistics now = heap->statistics();
        EXPECT_EQ(now.mapped, before - free_bytes_of_device());
        EXPECT_GE(now.peak_mapped, now.mapped);
        EXPECT_EQ(now.cached, cached);
        EXPECT_EQ(now.live_block + now.cached + now.free + now.pending, now.mapped);
    };
    gpu_->plant_fault("cuMemMap", 3, CUDA_ERROR_UNKNOWN);
    EXPECT_FALSE(heap->allocate(8 * kMiB, handle_).has_value());
    expect_exact(8 * kMiB);
    void* const block = must_allocate(*heap, 4 * kMiB, handle_);
    expect_exact(4 * kMiB);
    must_free(*heap, block);
    EXPECT_EQ(heap->trim(true).value_or(0), 8 * kMiB);
    expect_exact(0);
}

TEST_F(DeviceHeapMemory, WhatTheDriverDoesNotUnmapIsNotUsedAgainAndTheRestIs) {
    auto heap = make_heap(8 * kMiB);
    void* const lost = must_allocate(*heap, 2 * kMiB, handle_);
    must_free(*heap, lost);
    for (const unsigned nth : {1U, 2U}) gpu_->plant_fault("cuMemUnmap", nth, CUDA_ERROR_UNKNOWN);
    EXPECT_FALSE(heap->trim(true).has_value());
    EXPECT_EQ(heap->statistics().mapped, 2 * kMiB) << "it still counts";
    auto* const rest = static_cast<std::byte*>(must_allocate(*heap, 6 * kMiB, handle_));
    EXPECT_TRUE(lost < rest || lost >= rest + 6 * kMiB);
    fill(rest, 6 * kMiB, 4, stream_.handle());
    finish(stream_.handle());
    EXPECT_TRUE(all_are(content(rest, 6 * kMiB), 4));
    EXPECT_FALSE(heap->allocate(2 * kMiB, handle_).has_value());
    heap->check();
    heap.reset();  // which offers it once more
}

TEST_F(DeviceHeapMemory, EveryCallIsMadeInTheOwningContextWhateverTheCallersIs) {
    const auto second = gpu_->context(1);
    const CudaContext::Scope scope(*second);
    auto heap = make_heap(16 * kMiB);
    void* const block = must_allocate(*heap, 3 * kMiB, handle_);
    fill(block, 3 * kMiB, 7, stream_.handle());
    must_free(*heap, block);
    EXPECT_TRUE(heap->trim(true).has_value());
    EXPECT_NE(must_allocate(*heap, 100, 0), nullptr);
    heap.reset();
    CUcontext current = nullptr;
    EXPECT_EQ(gpu_->driver().cuCtxGetCurrent(&current), CUDA_SUCCESS);
    EXPECT_EQ(current, second->context());
}

TEST_F(DeviceHeapMemory, TheWholeDeviceIsTheBudgetUnlessOneIsNamed) {
    const auto whole = make_device_heap({.context = context_});
    ASSERT_TRUE(whole.has_value()) << whole.error().message();
    EXPECT_EQ((*whole)->backing().capacity_bytes(), free_bytes_of_device());
    const auto more = make_device_heap({.context = context_, .capacity_bytes = 65 * kMiB});
    ASSERT_FALSE(more.has_value());
    EXPECT_EQ(more.error().code(), Errc::invalid_argument);
    const auto less = make_device_heap({.context = context_, .capacity_bytes = kMiB});
    ASSERT_FALSE(less.has_value());
    EXPECT_EQ(less.error().code(), Errc::invalid_argument);
    EXPECT_EQ(make_device_heap({}).error().code(), Errc::invalid_argument) << "no context";
    EXPECT_EQ(make_device_heap({.context = context_, .chunk_bytes = 0}).error().code(),
              Errc::invalid_argument);
    EXPECT_EQ(make_device_heap({.context = context_, .peers = {0}}).error().code(),
              Errc::invalid_argument)
        << "no device is its own peer";
    const auto uneven = make_device_heap({.context = context_, .chunk_bytes = 3 * kMiB});
    ASSERT_FALSE(uneven.has_value());
    EXPECT_EQ(uneven.error().code(), Errc::invalid_argument);
}

TEST_F(DeviceHeapMemory, AddressesAreReservedAndNoMoreThanThereAre) {
    const std::uint64_t before = free_bytes_of_device();
    const auto heap = make_heap(16 * kMiB);
    EXPECT_EQ(free_bytes_of_device(), before) << "memory is taken when it is wanted";
    EXPECT_EQ(heap->statistics().reserved, 7 * 16 * kMiB);
    for (const unsigned nth : {1U, 2U}) {
        gpu_->plant_fault("cuMemAddressReserve", nth, CUDA_ERROR_OUT_OF_MEMORY);
    }
    const auto crowded = make_heap(16 * kMiB);
    EXPECT_EQ(crowded->statistics().reserved, 3 * 16 * kMiB) << "fewer will do";
    EXPECT_NE(must_allocate(*crowded, 16 * kMiB, handle_), nullptr);
    for (const unsigned nth : {1U, 2U, 3U}) {
        gpu_->plant_fault("cuMemAddressReserve", nth, CUDA_ERROR_OUT_OF_MEMORY);
    }
    const auto refused = make_device_heap({.context = context_, .capacity_bytes = 16 * kMiB});
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code(), Errc::no_space);
    EXPECT_NE(std::string(refused.error().message()).find("50331648 bytes of addresses"),
              std::string::npos)
        << refused.error().message();
}

TEST_F(DeviceHeapMemory, ItIsRefusedInAForkedChild) {
    auto heap = make_heap(16 * kMiB);
    void* const block = must_allocate(*heap, kMiB, handle_);
    const pid_t child = ::fork();
    if (child == 0) {
        const bool refused = heap->allocate(kMiB, 0).error().code() == Errc::busy &&
                             heap->free(block).error().code() == Errc::busy &&
                             heap->trim().error().code() == Errc::busy;
        heap.reset();
        ::_exit(refused ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    must_free(*heap, block);
}

}  // namespace
}  // namespace frostline
