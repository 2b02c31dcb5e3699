// A heap of GPU memory on the emulated driver, and a program's work on it: fills and reads that are
// queued and seen later, streams that stand still until a test lets them go on.
#pragma once

#include "allocator/device_heap.h"
#include "tests/tiers/emulated_gpu.h"
#include "tiers/cuda_stream.h"

#include <cuda.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace frostline {

inline constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

inline StreamHandle handle_of(const CudaStream& stream) {
    return reinterpret_cast<StreamHandle>(stream.handle());
}
inline CUdeviceptr device_address(const void* block) {
    return reinterpret_cast<CUdeviceptr>(block);
}

/// Page-locked memory of the host into which reads go.
class HostLanding {
   public:
    HostLanding(std::shared_ptr<const CudaContext> context, std::size_t size_bytes)
        : context_(std::move(context)) {
        void* memory = nullptr;
        EXPECT_TRUE(context_->run([&] {
            const CudaDriver& driver = context_->driver();
            return driver.check("cuMemHostAlloc", driver.cuMemHostAlloc(&memory, size_bytes, 0));
        }));
        bytes_ = {static_cast<unsigned char*>(memory), size_bytes};
        std::fill(bytes_.begin(), bytes_.end(), static_cast<unsigned char>(0xEE));
    }
    HostLanding(const HostLanding&) = delete;
    HostLanding& operator=(const HostLanding&) = delete;
    ~HostLanding() {
        EXPECT_TRUE(context_->run([&] {
            const CudaDriver& driver = context_->driver();
            return driver.check("cuMemFreeHost", driver.cuMemFreeHost(bytes_.data()));
        }));
    }
    std::span<unsigned char> bytes() const { return bytes_; }

   private:
    std::shared_ptr<const CudaContext> context_;
    std::span<unsigned char> bytes_;
};

/// While it is closed, what a stream is given after shut() waits. Open before it goes.
class StreamGate {
   public:
    StreamGate() = default;
    StreamGate(const StreamGate&) = delete;
    StreamGate& operator=(const StreamGate&) = delete;
    ~StreamGate() { open(); }

    void shut(const CudaContext& context, CUstream stream) {
        const auto wait = [](void* gate) {
            static_cast<StreamGate*>(gate)->open_.wait(false, std::memory_order_acquire);
        };
        EXPECT_TRUE(context.run([&] {
            return context.driver().check("cuLaunchHostFunc",
                                          FROSTLINE_EMULATED(cuLaunchHostFunc)(stream, wait, this));
        }));
    }
    void open() {
        open_.store(true, std::memory_order_release);
        open_.notify_all();
    }

   private:
    std::atomic<bool> open_{false};
};

class DeviceHeapTest : public testing::Test {
   protected:
    explicit DeviceHeapTest(const std::string& settings = "memory=64MiB,devices=2")
        : gpu_(settings) {}

    std::unique_ptr<DeviceHeap> make_heap(std::uint64_t capacity_bytes, HeapOptions options = {}) {
        auto made = make_device_heap(
            {.context = context_, .capacity_bytes = capacity_bytes, .heap = std::move(options)});
        if (!made) {
            ADD_FAILURE() << made.error().message();
            std::abort();
        }
        return *std::move(made);
    }
    CudaStream make_stream(int device = 0) {
        return *CudaStream::create(device == 0 ? context_ : gpu_->context(device));
    }

    static void* must_allocate(DeviceHeap& heap, std::uint64_t size_bytes, StreamHandle stream) {
        const auto block = heap.allocate(size_bytes, stream);
        EXPECT_TRUE(block.has_value()) << block.error().message();
        return block.value_or(nullptr);
    }
    static void must_free(DeviceHeap& heap, void* block) {
        const auto freed = heap.free(block);
        EXPECT_TRUE(freed.has_value()) << freed.error().message();
    }

    // Queued, on a stream of the first device.
    void fill(void* block, std::uint64_t size_bytes, unsigned char value, CUstream stream) const {
        expect_ok(context_->run([&] {
            const CudaDriver& driver = context_->driver();
            return driver.check(
                "cuMemsetD8Async",
                driver.cuMemsetD8Async(device_address(block), value, size_bytes, stream));
        }));
    }
    void read(const void* block, std::span<unsigned char> into, CUstream stream) const {
        expect_ok(context_->run([&] {
            const CudaDriver& driver = context_->driver();
            return driver.check(
                "cuMemcpyDtoHAsync",
                driver.cuMemcpyDtoHAsync(into.data(), device_address(block), into.size(), stream));
        }));
    }
    void finish(CUstream stream) const { expect_ok(synchronize(*context_, stream)); }
    std::vector<unsigned char> content(const void* block, std::uint64_t size_bytes) const {
        const HostLanding landing(context_, size_bytes);
        read(block, landing.bytes(), nullptr);
        finish(nullptr);
        return {landing.bytes().begin(), landing.bytes().end()};
    }
    static bool all_are(std::span<const unsigned char> bytes, unsigned char value) {
        return std::all_of(bytes.begin(), bytes.end(),
                           [&](unsigned char byte) { return byte == value; });
    }
    std::uint64_t free_bytes_of_device() const {
        std::size_t free_bytes = 0;
        std::size_t total_bytes = 0;
        expect_ok(context_->run([&] {
            const CudaDriver& driver = context_->driver();
            return driver.check("cuMemGetInfo", driver.cuMemGetInfo(&free_bytes, &total_bytes));
        }));
        return free_bytes;
    }
    static void expect_ok(const Result<void>& result) {
        EXPECT_TRUE(result.has_value()) << result.error().message();
    }

    EmulatedGpu gpu_;
    std::shared_ptr<CudaContext> context_ = gpu_->context();
};

}  // namespace frostline
