// What a framework does on a GPU, straight through the emulated driver: memory that comes and goes
// in a stream's order, work that writes it, and streams that are held up as if by long kernels.
#pragma once

#include "tests/tiers/emulated_gpu.h"

#include <cuda.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <future>
#include <memory>
#include <vector>

namespace frostline {

/// One device of the emulated machine. For one thread, on which it leaves the device current.
class Framework {
   public:
    explicit Framework(int device = 0) : context_(Emulator::get().context(device)) { use(); }
    Framework(const Framework&) = delete;
    Framework& operator=(const Framework&) = delete;
    ~Framework() {
        use();
        EXPECT_EQ(FROSTLINE_EMULATED(cuCtxSynchronize)(), CUDA_SUCCESS);
        for (const CUstream each : streams_) {
            EXPECT_EQ(FROSTLINE_EMULATED(cuStreamDestroy)(each), CUDA_SUCCESS);
        }
        EXPECT_EQ(FROSTLINE_EMULATED(cuCtxSetCurrent)(nullptr), CUDA_SUCCESS);
    }

    void use() const {
        EXPECT_EQ(FROSTLINE_EMULATED(cuCtxSetCurrent)(context_->context()), CUDA_SUCCESS);
    }
    CUstream stream() {
        CUstream made = nullptr;
        EXPECT_EQ(FROSTLINE_EMULATED(cuStreamCreate)(&made, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
        streams_.push_back(made);
        return made;
    }

    /// Memory of the device's pool, in the stream's order.
    static CUdeviceptr allocate(std::uint64_t size_bytes, CUstream stream) {
        CUdeviceptr made = 0;
        EXPECT_EQ(FROSTLINE_EMULATED(cuMemAllocAsync)(&made, size_bytes, stream), CUDA_SUCCESS);
        return made;
    }
    static void free(CUdeviceptr memory, CUstream stream) {
        EXPECT_EQ(FROSTLINE_EMULATED(cuMemFreeAsync)(memory, stream), CUDA_SUCCESS);
    }
    /// Work that writes `value` all over it.
    static void fill(CUdeviceptr memory, std::uint64_t size_bytes, unsigned char value,
                     CUstream stream) {
        EXPECT_EQ(FROSTLINE_EMULATED(cuMemsetD8Async)(memory, value, size_bytes, stream),
                  CUDA_SUCCESS);
    }
    /// A new tensor of that value, as queued work leaves it.
    static CUdeviceptr tensor(std::uint64_t size_bytes, unsigned char value, CUstream stream) {
        const CUdeviceptr memory = allocate(size_bytes, stream);
        fill(memory, size_bytes, value, stream);
        return memory;
    }

    /// What the stream's work leaves there is `value` throughout. Waits for the stream.
    static bool holds(CUdeviceptr memory, std::uint64_t size_bytes, unsigned char value,
                      CUstream stream) {
        std::vector<unsigned char> bytes(size_bytes);
        EXPECT_EQ(FROSTLINE_EMULATED(cuMemcpyDtoHAsync)(bytes.data(), memory, size_bytes, stream),
                  CUDA_SUCCESS);
        EXPECT_EQ(FROSTLINE_EMULATED(cuStreamSynchronize)(stream), CUDA_SUCCESS);
        return std::all_of(bytes.begin(), bytes.end(),
                           [value](unsigned char byte) { return byte == value; });
    }
    static bool is_idle(CUstream stream) {
        return FROSTLINE_EMULATED(cuStreamQuery)(stream) == CUDA_SUCCESS;
    }

   private:
    std::shared_ptr<CudaContext> context_;
    std::vector<CUstream> streams_;
};

/// Holds a stream up, as a kernel does that takes long, until it is opened or goes out of scope.
class StreamGate {
   public:
    explicit StreamGate(CUstream stream) : opened_(open_.get_future()) {
        EXPECT_EQ(FROSTLINE_EMULATED(cuLaunchHostFunc)(
                      stream, [](void* gate) { static_cast<StreamGate*>(gate)->wait(); }, this),
                  CUDA_SUCCESS);
    }
    StreamGate(const StreamGate&) = delete;
    StreamGate& operator=(const StreamGate&) = delete;
    ~StreamGate() {
        open();
        passed_.get_future().wait();
    }
    void open() {
        if (!std::exchange(is_open_, true)) open_.set_value();
    }

   private:
    void wait() {
        opened_.wait();
        passed_.set_value();
    }
    std::promise<void> open_;
    std::promise<void> passed_;  // so that the host function is done with this object
    std::future<void> opened_;
    bool is_open_ = false;
};

}  // namespace frostline
