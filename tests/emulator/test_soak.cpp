// Random work on several threads under many seeds, each checked against what it has to leave: the
// emulator itself may not reorder what a stream or an event orders, whatever the delays.
#include <array>
#include <random>
#include <thread>

#include "tests/emulator/driver_fixture.h"

namespace frostline::emulator_test {
namespace {

constexpr std::size_t kBlock = 4096;
constexpr std::size_t kBlocks = 8;

/// One thread's streams and memory. Every block knows which value it has to hold in the end.
class Worker {
   public:
    Worker(CUcontext context, unsigned seed) : context_(context), random_(seed) {}

    void run(int steps) {
        ASSERT_CUDA_OK(cuCtxSetCurrent(context_));
        prepare();
        for (int i = 0; i < steps; ++i) step();
        for (const CUstream s : streams_) ASSERT_CUDA_OK(cuStreamSynchronize(s));
        check();
        clean_up();
    }

   private:
    void prepare() {
        ASSERT_CUDA_OK(cuMemAlloc(&memory_, kBlock * kBlocks));
        void* host = nullptr;
        ASSERT_CUDA_OK(cuMemAllocHost(&host, kBlock * kBlocks));
        host_ = static_cast<unsigned char*>(host);
        for (CUstream& s : streams_) ASSERT_CUDA_OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
        for (CUevent& e : written_) ASSERT_CUDA_OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
        ASSERT_CUDA_OK(cuMemsetD8Async(memory_, 0, kBlock * kBlocks, streams_[0]));
        for (const CUevent e : written_) ASSERT_CUDA_OK(cuEventRecord(e, streams_[0]));
    }
    CUdeviceptr block(std::size_t i) const { return memory_ + i * kBlock; }

    void step() {
        const CUstream s = streams_[random_() % streams_.size()];
        const std::size_t target = random_() % kBlocks;
        const std::size_t source = random_() % kBlocks;
        ASSERT_CUDA_OK(cuStreamWaitEvent(s, written_[target], 0));
        ASSERT_CUDA_OK(cuStreamWaitEvent(s, written_[source], 0));
        if (random_() % 2 == 0) {
            const auto value = static_cast<unsigned char>(random_());
            ASSERT_CUDA_OK(cuMemsetD8Async(block(target), value, kBlock, s));
            expected_[target] = value;
        } else {
            ASSERT_CUDA_OK(cuMemcpyDtoDAsync(block(target), block(source), kBlock, s));
            expected_[target] = expected_[source];
        }
        // The source must not be overwritten before it was read, so that is an event of it, too.
        ASSERT_CUDA_OK(cuEventRecord(written_[target], s));
        ASSERT_CUDA_OK(cuEventRecord(written_[source], s));
    }

    void check() {
        ASSERT_CUDA_OK(cuMemcpyDtoHAsync(host_, memory_, kBlock * kBlocks, streams_[0]));
        ASSERT_CUDA_OK(cuStreamSynchronize(streams_[0]));
        for (std::size_t i = 0; i < kBlocks * kBlock; ++i) {
            ASSERT_EQ(host_[i], expected_[i / kBlock]) << "byte " << i;
        }
    }
    void clean_up() {
        for (const CUstream s : streams_) ASSERT_CUDA_OK(cuStreamDestroy(s));
        for (const CUevent e : written_) ASSERT_CUDA_OK(cuEventDestroy(e));
        ASSERT_CUDA_OK(cuMemFreeHost(host_));
        ASSERT_CUDA_OK(cuMemFree(memory_));
    }

    CUcontext context_;
    std::mt19937 random_;
    std::array<CUstream, 3> streams_{};
    std::array<CUevent, kBlocks> written_{};
    std::array<unsigned char, kBlocks> expected_{};
    CUdeviceptr memory_ = 0;
    unsigned char* host_ = nullptr;
};

class SoakTest : public DriverTest {};

TEST_F(SoakTest, WhatStreamsAndEventsOrderIsDoneInThatOrder) {
    for (unsigned seed = 1; seed <= 30; ++seed) {
        const std::string jitter = seed % 3 == 0 ? ",jitter_us=20" : "";
        start(("memory=64MiB,seed=" + std::to_string(seed) + jitter).c_str());
        std::vector<std::thread> threads;
        for (unsigned i = 0; i < 3; ++i) {
            threads.emplace_back([=, this] { Worker(context_, seed * 10 + i).run(100); });
        }
        for (std::thread& thread : threads) thread.join();
        ASSERT_FALSE(HasFailure()) << "seed " << seed;
    }
}

}  // namespace
}  // namespace frostline::emulator_test
