// Proves that transfers of a device are cut where host memory changes its kind, that none is larger
// than a more urgent one may wait for, and that one which failed has ended when it is told.
#include "tiers/device_queue.h"
#include "tests/tiers/emulated_gpu.h"
#include "tests/tiers/tier_specimen.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <tuple>

namespace frostline {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
};

// Host memory of 16 MiB: pageable, then registered in one piece of 8 MiB and one of 2, then
// pageable again.
class DeviceQueueTest : public testing::Test {
   protected:
    DeviceQueueTest() {
        std::fill_n(host_.get(), kBytes, std::byte{0});
        EXPECT_TRUE(pins_->add(registered()).has_value());
    }
    ~DeviceQueueTest() override {
        // Here the emulated driver reports a copy that still uses it.
        EXPECT_TRUE(pins_->remove(registered()).has_value());
    }
    std::span<std::byte> registered() { return {host_.get() + 3 * kMiB, 10 * kMiB}; }
    std::span<std::byte> host(std::uint64_t offset, std::uint64_t bytes) {
        return {host_.get() + offset, bytes};
    }
    std::unique_ptr<DeviceTier> tier() {
        return *DeviceTier::create(
            {.context = context_, .capacity_bytes = 32 * kMiB, .registered = pins_.get()});
    }
    void expect_piece(TransferQueue& queue, const std::byte* memory, std::uint64_t bytes,
                      bool in_place) const {
        const TransferPiece piece = queue.next_piece(extent_, 0, memory);
        EXPECT_EQ(piece.size_bytes, bytes);
        EXPECT_EQ(piece.in_place, in_place);
    }

    static constexpr std::uint64_t kBytes = 16 * kMiB;
    EmulatedGpu gpu_{"memory=64MiB,latency_us=3000"};
    std::shared_ptr<CudaContext> context_ = gpu_->context();
    std::unique_ptr<std::byte, Free> host_{
        static_cast<std::byte*>(std::aligned_alloc(kPageBytes, kBytes))};
    std::unique_ptr<HostRegistration> pins_ =
        *HostRegistration::create({.context = context_, .chunk_bytes = 8 * kMiB});
    std::unique_ptr<DeviceTier> tier_ = tier();
    Extent extent_ = *tier_->reserve(kBytes);
};

TEST_F(DeviceQueueTest, PiecesEndWhereHostMemoryChangesAndAreBounded) {
    const auto queue = *tier_->open_queue();
    expect_piece(*queue, nullptr, kMiB, false);
    expect_piece(*queue, host_.get(), kMiB, false);
    expect_piece(*queue, host_.get() + 3 * kMiB - 100, 100, false);
    expect_piece(*queue, host_.get() + 3 * kMiB, 4 * kMiB, true);
    expect_piece(*queue, host_.get() + 10 * kMiB, kMiB, true);
    expect_piece(*queue, host_.get() + 11 * kMiB, 2 * kMiB, true);
    expect_piece(*queue, host_.get() + 13 * kMiB, kMiB, false);
    expect_piece(*queue, tier_->address(extent_), 4 * kMiB, true);
    const TransferPiece rest = queue->next_piece(extent_, kBytes - 10, host_.get() + 4 * kMiB);
    EXPECT_EQ(rest.size_bytes, 10U) << "the end of the extent";
}

// It may be a device's, and staging would have the CPU touch it.
TEST_F(DeviceQueueTest, WhereTheDriverDoesNotSayWhatMemoryIsTheCpuStaysAway) {
    const auto queue = *tier_->open_queue();
    gpu_->plant_fault("cuPointerGetAttributes", 1, CUDA_ERROR_UNKNOWN);
    expect_piece(*queue, tier_->address(extent_), 4 * kMiB, true);
}

// The end of the context would take it along, and so it is no leak to the emulated driver.
TEST_F(DeviceQueueTest, ItsEndGivesItsStagingBack) {
    auto queue = *tier_->open_queue();
    const std::uint64_t registered = gpu_->calls("cuMemHostRegister");
    const std::uint64_t unregistered = gpu_->calls("cuMemHostUnregister");
    for (const std::size_t slot : {0U, 31U, 0U}) {
        ASSERT_TRUE(queue->staging(slot).has_value());
    }
    queue.reset();
    EXPECT_EQ(gpu_->calls("cuMemHostRegister") - registered, 2U);
    EXPECT_EQ(gpu_->calls("cuMemHostUnregister") - unregistered, 2U);
}

TEST_F(DeviceQueueTest, CopiesMayCrossEveryBorder) {
    auto random = random_stream(95);
    const Bytes bytes = random_bytes(random, kBytes);
    const auto stream = *CudaStream::create(context_);
    const auto address = reinterpret_cast<CUdeviceptr>(tier_->address(extent_));
    const DeviceCopies& copies = tier_->copies();
    std::copy(bytes.begin(), bytes.end(), host_.get());
    ASSERT_TRUE(copies.start_write(address, host(0, kBytes), stream.handle()).has_value());
    ASSERT_TRUE(stream.synchronize().has_value());
    std::fill_n(host_.get(), kBytes, std::byte{0});
    ASSERT_TRUE(copies.start_read(address, host(0, kBytes), stream.handle()).has_value());
    ASSERT_TRUE(stream.synchronize().has_value());
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), host_.get()));
    // And from there to where the device itself is.
    const Extent other = *tier_->reserve(kBytes);
    ASSERT_TRUE(copies.start_read(address, {tier_->address(other), kBytes}, stream.handle()));
    ASSERT_TRUE(stream.synchronize().has_value());
    EXPECT_TRUE(read_all(*tier_, other) == bytes);
    tier_->release(other);
}

TEST_F(DeviceQueueTest, ATransferThatFailedMidwayHasEndedAndItsSlotIsGoodAgain) {
    const auto queue = *tier_->open_queue();
    const auto push = [&](std::uint64_t tag) {
        queue->push({Transfer::Direction::read, extent_, 0, host(10 * kMiB, 2 * kMiB), tag});
    };
    for (const auto& [function, nth] :
         {std::pair("cuMemcpyDtoHAsync", 2U), {"cuEventRecord", 1U}}) {
        gpu_->plant_fault(function, nth, CUDA_ERROR_UNKNOWN);
        push(5);
        const TransferEnd failed = queue->wait();
        EXPECT_EQ(failed.tag, 5U);
        EXPECT_FALSE(failed.status.has_value()) << function;
        // Here the driver reports a copy that still uses it.
        ASSERT_TRUE(pins_->remove(registered()).has_value());
        ASSERT_TRUE(pins_->add(registered()).has_value());
    }
    // More than there are slots, so that each is used again.
    for (std::uint64_t tag = 0; tag < 2 * queue->depth(); ++tag) {
        push(tag);
        const TransferEnd end = queue->wait();
        EXPECT_EQ(end.tag, tag);
        EXPECT_TRUE(end.status.has_value());
    }
}

}  // namespace
}  // namespace frostline
