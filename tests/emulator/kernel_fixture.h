// A fixture with everything that a test of kernels needs: a driver that was just started, a current
// context, the module of test kernels, and memory. At its end each misuse that a test provoked has
// to have been named by it: others fail the test.
#pragma once

#include <cuda.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <string>
#include <tuple>
#include <vector>

#include "tiers/emulator/emulator.h"

namespace frostline::emulator {

#define ASSERT_CUDA(call) ASSERT_EQ(call, CUDA_SUCCESS)
#define EXPECT_CUDA(call) EXPECT_EQ(call, CUDA_SUCCESS)

/// The text before the colon of every report since the last restart or clearing.
inline std::vector<std::string> misuse_names() {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < frostline_emulator_misuse_count(); ++i) {
        const std::string report = frostline_emulator_misuse(i);
        names.push_back(report.substr(0, report.find(':')));
    }
    return names;
}

class KernelTest : public ::testing::Test {
   protected:
    void SetUp() override { start(""); }

    void start(const char* settings) {
        frostline_emulator_restart(settings);
        ASSERT_CUDA(cuInit(0));
        ASSERT_CUDA(cuDevicePrimaryCtxRetain(&context_, 0));
        ASSERT_CUDA(cuCtxSetCurrent(context_));
        ASSERT_CUDA(cuModuleLoad(&module_, FROSTLINE_EMULATOR_KERNELS));
    }

    void TearDown() override {
        EXPECT_THAT(misuse_names(), ::testing::IsEmpty());
        frostline_emulator_restart("leaks=0");
    }

    /// Checks that exactly these misuses were reported, in this order, and forgets them.
    void expect_misuse(const std::vector<std::string>& names) {
        EXPECT_EQ(misuse_names(), names);
        frostline_emulator_clear_misuse();
    }

    CUfunction kernel(const char* name) {
        CUfunction function = nullptr;
        EXPECT_CUDA(cuModuleGetFunction(&function, module_, name));
        return function;
    }

    /// Device memory for that many zeros.
    CUdeviceptr ints(std::size_t count) {
        CUdeviceptr address = 0;
        EXPECT_CUDA(cuMemAlloc(&address, count * sizeof(int)));
        EXPECT_CUDA(cuMemsetD32(address, 0, count));
        return address;
    }

    static std::vector<int> read_ints(CUdeviceptr address, std::size_t count) {
        std::vector<int> values(count, -1);
        EXPECT_CUDA(cuMemcpyDtoH(values.data(), address, count * sizeof(int)));
        return values;
    }

    CUstream stream() {
        CUstream made = nullptr;
        EXPECT_CUDA(cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
        return made;
    }

    CUevent event() {
        CUevent made = nullptr;
        EXPECT_CUDA(cuEventCreate(&made, CU_EVENT_DISABLE_TIMING));
        return made;
    }

    /// One block of as many threads.
    template <class... Arguments>
    static CUresult launch(CUfunction function, unsigned threads, CUstream stream,
                           Arguments... arguments) {
        std::array<void*, sizeof...(Arguments) + 1> pointers{&arguments..., nullptr};
        return cuLaunchKernel(function, 1, 1, 1, threads, 1, 1, 0, stream, pointers.data(),
                              nullptr);
    }

    CUresult fill(CUdeviceptr address, int value, int count, CUstream stream) {
        return launch(kernel("fill"), static_cast<unsigned>(count), stream, address, value, count);
    }
    CUresult add_one(CUdeviceptr address, int count, CUstream stream) {
        return launch(kernel("add_one"), static_cast<unsigned>(count), stream, address, count);
    }

    CUcontext context_ = nullptr;
    CUmodule module_ = nullptr;
};

/// A flag in pinned memory that a kernel waits for; set in any case when it goes out of scope, so
/// that a failed test does not hang.
class Gate {
   public:
    Gate() {
        void* memory = nullptr;
        EXPECT_CUDA(cuMemAllocHost(&memory, sizeof(unsigned)));
        flag_ = static_cast<unsigned*>(memory);
        *flag_ = 0;
    }
    Gate(const Gate&) = delete;
    Gate& operator=(const Gate&) = delete;
    ~Gate() { open(); }

    const unsigned* flag() const { return flag_; }
    unsigned* flag() { return flag_; }
    void open() { __atomic_store_n(flag_, 1u, __ATOMIC_RELEASE); }
    bool is_open() const { return __atomic_load_n(flag_, __ATOMIC_ACQUIRE) != 0; }

   private:
    unsigned* flag_ = nullptr;
};

/// One physical handle of the granularity, mapped with access for device 0.
struct Mapping {
    explicit Mapping(std::size_t size_bytes = std::size_t{2} << 20) : bytes(size_bytes) {
        CUmemAllocationProp properties{};
        properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        EXPECT_CUDA(cuMemAddressReserve(&address, bytes, 0, 0, 0));
        EXPECT_CUDA(cuMemCreate(&handle, bytes, &properties, 0));
        map();
    }
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;

    void map() {
        EXPECT_CUDA(cuMemMap(address, bytes, 0, handle, 0));
        allow(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    }
    void allow(CUmemAccess_flags flags) {
        CUmemAccessDesc access{};
        access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        access.flags = flags;
        EXPECT_CUDA(cuMemSetAccess(address, bytes, &access, 1));
    }
    void unmap() { EXPECT_CUDA(cuMemUnmap(address, bytes)); }

    CUdeviceptr address = 0;
    CUmemGenericAllocationHandle handle = 0;
    std::size_t bytes;
};

}  // namespace frostline::emulator
