// Proves the faces of device heaps on the emulated driver: buffers are used by queued work, freed
// before it is done and not handed to another stream until then; nothing is left when the heap
// goes.
#include "frostline/device_memory.h"
#include "frostline/host_memory.h"
#include "frostline/memory_resource.h"
#include "frostline/tensor_buffer.h"
#include "tests/bindings/environment.h"
#include "tests/bindings/framework.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <new>
#include <thread>

namespace frostline {
namespace {

constexpr std::size_t kMi = std::size_t{1} << 20;

CUdeviceptr device(const TensorBuffer& buffer) {
    return reinterpret_cast<CUdeviceptr>(buffer.data());
}

class HeapOnGpu : public testing::Test {
   protected:
    static DeviceMemory open(std::uint64_t capacity_bytes) {
        auto memory = DeviceMemory::open({.name = "gpu", .capacity_bytes = capacity_bytes});
        if (!memory) {
            ADD_FAILURE() << memory.failure().message();
            std::abort();
        }
        return *std::move(memory);
    }

    EmulatedGpu gpu_{"memory=64MiB,jitter_us=200"};
    EnvironmentVariable driver_{"FROSTLINE_CUDA_DRIVER", FROSTLINE_EMULATOR};
    Framework framework_;
    CUstream stream_ = framework_.stream();
    CUstream other_ = framework_.stream();
};

TEST_F(HeapOnGpu, ABufferIsUsedAgainOnItsStreamWhileWorkIsQueued) {
    DeviceMemory memory = open(8 * kMi);
    auto first = TensorBuffer::create(memory, 8 * kMi, stream_);
    ASSERT_TRUE(first) << first.failure().message();
    EXPECT_EQ(first->stream(), stream_);
    const CUdeviceptr address = device(*first);
    StreamGate gate(stream_);
    Framework::fill(address, 8 * kMi, 1, stream_);
    first->reset();
    auto second = TensorBuffer::create(memory, 8 * kMi, stream_);
    ASSERT_TRUE(second) << second.failure().message();
    EXPECT_EQ(device(*second), address) << "there is no other memory";
    EXPECT_FALSE(Framework::is_idle(stream_)) << "the host has waited";
    Framework::fill(address, 8 * kMi, 2, stream_);
    gate.open();
    EXPECT_TRUE(Framework::holds(address, 8 * kMi, 2, stream_));
}

TEST_F(HeapOnGpu, MemoryOfARecordedStreamWaitsForIt) {
    DeviceMemory memory = open(16 * kMi);
    TensorBuffer used = *TensorBuffer::create(memory, 8 * kMi, stream_);
    const CUdeviceptr address = device(used);
    ASSERT_TRUE(used.record_stream(other_));
    StreamGate gate(other_);
    Framework::fill(address, 8 * kMi, 1, other_);
    used.reset();
    EXPECT_EQ(memory.statistics()->pending_bytes, 8 * kMi);
    const TensorBuffer next = *TensorBuffer::create(memory, 8 * kMi, stream_);
    EXPECT_NE(device(next), address);
    gate.open();
    EXPECT_TRUE(Framework::holds(address, 8 * kMi, 1, other_));
}

TEST_F(HeapOnGpu, AStreamMayBeDestroyedWithWorkQueuedOnceItIsForgotten) {
    DeviceMemory memory = open(8 * kMi);
    CUstream third = nullptr;
    ASSERT_EQ(FROSTLINE_EMULATED(cuStreamCreate)(&third, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    TensorBuffer buffer = *TensorBuffer::create(memory, 8 * kMi, third);
    StreamGate gate(third);
    Framework::fill(device(buffer), 8 * kMi, 1, third);
    buffer.reset();
    const auto forgotten = memory.forget_stream(third);
    EXPECT_TRUE(forgotten) << forgotten.failure().message();
    EXPECT_EQ(FROSTLINE_EMULATED(cuStreamDestroy)(third), CUDA_SUCCESS);
    TensorBuffer next = *TensorBuffer::create(memory, 8 * kMi, stream_);
    Framework::fill(device(next), 8 * kMi, 2, stream_);
    gate.open();
    EXPECT_TRUE(Framework::holds(device(next), 8 * kMi, 2, stream_));
}

TEST_F(HeapOnGpu, RefusesStreamsThatMeanAnotherOnEachThread) {
    DeviceMemory memory = open(8 * kMi);
    auto* const own_default = reinterpret_cast<void*>(2);
    const auto refused = memory.allocate(100, own_default);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.failure().status(), FROSTLINE_INVALID_ARGUMENT);
    EXPECT_NE(std::strstr(refused.failure().message(), "each thread"), nullptr);
    TensorBuffer buffer = *TensorBuffer::create(memory, 100, stream_);
    EXPECT_EQ(buffer.record_stream(own_default).failure().status(), FROSTLINE_INVALID_ARGUMENT);
    // The legacy default stream has two names.
    auto* const legacy = reinterpret_cast<void*>(1);
    EXPECT_TRUE(TensorBuffer::create(memory, 100, legacy));
    EXPECT_TRUE(buffer.record_stream(legacy));
}

TEST_F(HeapOnGpu, AMemoryResourceHandsOutDeviceMemory) {
    DeviceMemory memory = open(8 * kMi);
    memory_resource resource(memory, stream_);
    void* const block = resource.allocate(kMi);
    EXPECT_TRUE(memory.owns(block));
    Framework::fill(reinterpret_cast<CUdeviceptr>(block), kMi, 3, stream_);
    EXPECT_TRUE(Framework::holds(reinterpret_cast<CUdeviceptr>(block), kMi, 3, stream_));
    resource.deallocate(block, kMi);
    EXPECT_THROW((void)resource.allocate(9 * kMi), std::bad_alloc);
    EXPECT_TRUE(resource.is_equal(memory_resource(memory, stream_)));
    EXPECT_FALSE(resource.is_equal(memory_resource(memory, other_)));
}

// What is left when the emulated GPU goes would be reported, and so would be memory that was taken
// away under work.
TEST_F(HeapOnGpu, TheLastBlockClosesAHeapThatItsOwnerLeftBehindTheWork) {
    TensorBuffer buffer;
    frostline_heap* heap = nullptr;
    {
        DeviceMemory memory = open(8 * kMi);
        heap = memory.get();
        buffer = *TensorBuffer::create(memory, 8 * kMi, stream_);
        ASSERT_TRUE(buffer.record_stream(other_));
    }
    Framework::fill(device(buffer), 8 * kMi, 1, stream_);
    Framework::fill(device(buffer), 8 * kMi, 2, other_);
    buffer.reset();
    int owns = 0;
    EXPECT_EQ(frostline_heap_owns(heap, &owns, &owns), FROSTLINE_CLOSED);
}

// A heap is wanted alone while a call waits for a stream whose work needs the heap itself.
struct FreesOnAStream {
    frostline_heap* heap = nullptr;
    void* block = nullptr;
    std::atomic<bool> begins{false};
    std::atomic<frostline_status> freed{FROSTLINE_IO};

    static void run(void* state) {
        auto& self = *static_cast<FreesOnAStream*>(state);
        self.begins.wait(false);
        std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the other is in its call
        self.freed = frostline_heap_free(self.heap, self.block);
    }
};

TEST_F(HeapOnGpu, ClosingItWaitsForNobodyWhoWaitsForACallOfIt) {
    DeviceMemory memory = open(8 * kMi);
    TensorBuffer waited_for = *TensorBuffer::create(memory, kMi, stream_);
    FreesOnAStream last{memory.get(), *memory.allocate(kMi, stream_)};
    ASSERT_EQ(FROSTLINE_EMULATED(cuLaunchHostFunc)(stream_, &FreesOnAStream::run, &last),
              CUDA_SUCCESS);
    waited_for.reset();
    std::thread trims([&] { EXPECT_TRUE(memory.trim(true)); });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    last.begins = true;
    last.begins.notify_one();
    EXPECT_TRUE(memory.close());  // nothing lives when it has the heap
    trims.join();
    EXPECT_EQ(last.freed, FROSTLINE_OK);
}

TEST_F(HeapOnGpu, SaysWhatIsWrongWithItsOptions) {
    const auto no_gpu = DeviceMemory::open({.gpu = 99});
    ASSERT_FALSE(no_gpu);
    EXPECT_EQ(no_gpu.failure().status(), FROSTLINE_INVALID_ARGUMENT);
    const auto no_peer = DeviceMemory::open({.capacity_bytes = 8 * kMi, .peers = {98, 99}});
    ASSERT_FALSE(no_peer);
    EXPECT_STRNE(no_peer.failure().message(), "");
    const auto no_chunk = DeviceMemory::open({.capacity_bytes = 8 * kMi, .chunk_bytes = 100});
    ASSERT_FALSE(no_chunk);
    EXPECT_EQ(no_chunk.failure().status(), FROSTLINE_INVALID_ARGUMENT);
}

TEST_F(HeapOnGpu, HostMemoryIsPinnedForIt) {
    auto memory = HostMemory::open({.capacity_bytes = 8 * kMi, .pinned_for = 0});
    ASSERT_TRUE(memory) << memory.failure().message();
    TensorBuffer buffer = *TensorBuffer::create(*memory, kMi);
    EXPECT_GE(memory->statistics()->pinned_bytes, kMi);
    buffer.reset();
    EXPECT_TRUE(memory->close());
}

}  // namespace
}  // namespace frostline
