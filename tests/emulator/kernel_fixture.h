// What a test of kernels needs on top of a driver: the module of test kernels, launches, and
// kernels that end when the test says so. These tests are not about leaks and clean nothing up.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

#include "tests/emulator/driver_fixture.h"

namespace frostline::emulator_test {

/// A flag in pinned memory that a kernel waits for; set in any case when it goes out of scope, so
/// that a failed test does not hang.
class KernelGate {
   public:
    KernelGate() {
        void* memory = nullptr;
        EXPECT_CUDA_OK(cuMemAllocHost(&memory, sizeof(unsigned)));
        flag_ = static_cast<unsigned*>(memory);
        *flag_ = 0;
    }
    KernelGate(const KernelGate&) = delete;
    KernelGate& operator=(const KernelGate&) = delete;
    ~KernelGate() { open(); }

    const unsigned* flag() const { return flag_; }
    unsigned* flag() { return flag_; }
    void open() { __atomic_store_n(flag_, 1u, __ATOMIC_RELEASE); }
    bool is_open() const { return __atomic_load_n(flag_, __ATOMIC_ACQUIRE) != 0; }

   private:
    unsigned* flag_ = nullptr;
};

class KernelTest : public DriverTest {
   protected:
    void SetUp() override { start("leaks=0"); }

    void start(const char* settings) {
        DriverTest::start(settings);
        ASSERT_CUDA_OK(cuModuleLoad(&module_, FROSTLINE_EMULATOR_KERNELS));
    }

    void TearDown() override {
        EXPECT_THAT(reported_names(), ::testing::IsEmpty());
        frostline_emulator_restart("leaks=0");
    }

    CUfunction kernel(const char* name) {
        CUfunction function = nullptr;
        EXPECT_CUDA_OK(cuModuleGetFunction(&function, module_, name));
        return function;
    }

    /// Device memory for that many zeros.
    CUdeviceptr ints(std::size_t count) {
        CUdeviceptr address = 0;
        EXPECT_CUDA_OK(cuMemAlloc(&address, count * sizeof(int)));
        EXPECT_CUDA_OK(cuMemsetD32(address, 0, count));
        // A fill is asynchronous, and non-blocking streams would not wait for it.
        EXPECT_CUDA_OK(cuStreamSynchronize(nullptr));
        return address;
    }

    static std::vector<int> read_ints(CUdeviceptr address, std::size_t count) {
        std::vector<int> values(count, -1);
        EXPECT_CUDA_OK(cuMemcpyDtoH(values.data(), address, count * sizeof(int)));
        return values;
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

    /// A kernel holds the stream up until a misuse is reported; behind it comes what `queue` adds,
    /// and `misuse` is called meanwhile.
    template <class Queue, class Misuse>
    void under_work(CUstream work, Queue&& queue, Misuse&& misuse) {
        KernelGate gate;
        EXPECT_CUDA_OK(launch(kernel("run_until_set"), 1, work, gate.flag()));
        queue();
        std::atomic<bool> returned = false;
        std::thread opener([&] {
            while (frostline_emulator_misuse_count() == 0 && !returned) std::this_thread::yield();
            gate.open();
        });
        misuse();
        // The misuse waits for the work, or the work is none of its business.
        returned = true;
        opener.join();
        EXPECT_CUDA_OK(cuStreamSynchronize(work));
    }

    CUmodule module_ = nullptr;
};

/// One physical handle of the granularity, mapped with access for device 0.
struct Mapping {
    explicit Mapping(std::size_t size_bytes = std::size_t{2} << 20) : bytes(size_bytes) {
        CUmemAllocationProp properties{};
        properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        EXPECT_CUDA_OK(cuMemAddressReserve(&address, bytes, 0, 0, 0));
        EXPECT_CUDA_OK(cuMemCreate(&handle, bytes, &properties, 0));
        map();
    }
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;

    void map() {
        EXPECT_CUDA_OK(cuMemMap(address, bytes, 0, handle, 0));
        allow(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    }
    void allow(CUmemAccess_flags flags) {
        CUmemAccessDesc access{};
        access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        access.flags = flags;
        EXPECT_CUDA_OK(cuMemSetAccess(address, bytes, &access, 1));
    }
    void unmap() { EXPECT_CUDA_OK(cuMemUnmap(address, bytes)); }

    CUdeviceptr address = 0;
    CUmemGenericAllocationHandle handle = 0;
    std::size_t bytes;
};

}  // namespace frostline::emulator_test
