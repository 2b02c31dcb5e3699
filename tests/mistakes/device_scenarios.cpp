// What a program does with device memory, in small scenes with late copies. With the library as it
// is every one is clean; device_mistakes.py runs them with mistakes planted in copies of the code,
// and each must then show, as misuse that the emulated driver reports or as wrong bytes.
#include "bindings/manager.h"
#include "tests/bindings/environment.h"
#include "tests/bindings/framework.h"
#include "tests/tiers/emulated_gpu.h"
#include "tests/tiers/scratch_folder.h"
#include "tiers/device_tier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace frostline {
namespace {

constexpr std::uint64_t kKi = 1024;
constexpr std::uint64_t kMi = 1024 * kKi;
constexpr std::uint64_t kBytes = 48 * kKi;

class DeviceScenario : public testing::Test {
   protected:
    void open(const ManagerOptions& options) {
        auto opened = Manager::open(options);
        ASSERT_TRUE(opened.has_value()) << opened.error().message();
        manager_.emplace(*std::move(opened));
    }
    void expect_holds(TensorId id, std::uint64_t size_bytes, unsigned char value) {
        std::vector<std::byte> bytes(size_bytes);
        const auto got = manager_->get(id, bytes);
        EXPECT_TRUE(got.has_value()) << got.error().message();
        const bool right = std::all_of(bytes.begin(), bytes.end(), [value](std::byte byte) {
            return byte == std::byte{value};
        });
        EXPECT_TRUE(right) << "wrong bytes";
    }
    // The value is there only at the end of much work.
    static void fill_at_last(CUdeviceptr memory, std::uint64_t size_bytes, unsigned char value,
                             CUstream stream) {
        for (unsigned char i = 0; i < 5; ++i) {
            Framework::fill(memory, size_bytes, static_cast<unsigned char>(value + 4 - i), stream);
        }
    }
    // A tensor that a stream has long been writing to when its owner lets go of it.
    std::optional<TensorId> written(std::uint64_t size_bytes, unsigned char value,
                                    CUstream stream) {
        auto made = manager_->allocate(size_bytes);
        EXPECT_TRUE(made.has_value()) << made.error().message();
        if (!made) return std::nullopt;
        const auto address = reinterpret_cast<CUdeviceptr>(made->pin.bytes().data());
        fill_at_last(address, size_bytes, value, stream);
        made->pin.release_after(stream);
        return made->id;
    }

    EnvironmentVariable driver_{"FROSTLINE_CUDA_DRIVER", FROSTLINE_EMULATOR};
    EmulatedGpu gpu_{"memory=64MiB,devices=2,granularity=4KiB,latency_us=10000"};
    ScratchFolder folder_{ScratchFolder::On::memory};
    std::optional<Manager> manager_;
};

TEST_F(DeviceScenario, TensorsComeAndGoUnderWork) {
    Framework framework;
    const CUstream stream = framework.stream();
    open({.device_bytes = 128 * kKi, .dram_bytes = 512 * kKi, .calibrate = false});
    std::vector<std::optional<TensorId>> tensors;
    for (unsigned char i = 1; i <= 5; ++i) tensors.push_back(written(kBytes, 10 * i, stream));
    for (unsigned char i = 1; i <= 5; ++i) {
        if (tensors[i - 1U]) expect_holds(*tensors[i - 1U], kBytes, 10 * i);
    }
    manager_.reset();
}

TEST_F(DeviceScenario, LargeTensorsGoThroughStaging) {
    Framework framework;
    const CUstream stream = framework.stream();
    open({.device_bytes = 12 * kMi,
          .dram_bytes = 0,
          .pmem_path = folder_.file("pmem"),
          .pmem_bytes = 40 * kMi,
          .calibrate = false});
    const auto first = written(9 * kMi, 10, stream);
    const auto second = written(9 * kMi, 20, stream);
    if (first) expect_holds(*first, 9 * kMi, 10);
    if (second) expect_holds(*second, 9 * kMi, 20);
    manager_.reset();
}

TEST_F(DeviceScenario, HostMemoryTakesWhatTheStreamWillHaveWritten) {
    Framework framework;
    const CUstream stream = framework.stream();
    open({.dram_bytes = 4 * kMi, .pin = true, .calibrate = false});
    const CUdeviceptr memory = Framework::allocate(kBytes, stream);
    fill_at_last(memory, kBytes, 7, stream);
    const auto id = manager_->put_device(reinterpret_cast<void*>(memory), kBytes, stream);
    ASSERT_TRUE(id.has_value()) << id.error().message();
    Framework::fill(memory, kBytes, 0xee, stream);
    expect_holds(*id, kBytes, 7);
    Framework::free(memory, stream);
    manager_.reset();
}

TEST_F(DeviceScenario, AManagerEndsWhileTensorsAreOnTheirWay) {
    Framework framework;
    const CUstream stream = framework.stream();
    open({.dram_bytes = 4 * kMi, .pin = true, .calibrate = false});
    const CUdeviceptr memory = Framework::tensor(kBytes, 7, stream);
    const auto id = manager_->put_device(reinterpret_cast<void*>(memory), kBytes, stream);
    ASSERT_TRUE(id.has_value()) << id.error().message();
    EXPECT_TRUE(manager_->drop(*id).has_value());
    manager_.reset();
    Framework::free(memory, stream);
}

TEST_F(DeviceScenario, C03_AnotherDeviceIsCurrent) {
    const Framework framework(1);
    open({.device_bytes = 128 * kKi, .dram_bytes = 512 * kKi, .calibrate = false});
    const auto id = manager_->put(std::vector<std::byte>(kBytes, std::byte{5}));
    if (id) expect_holds(*id, kBytes, 5);
    manager_.reset();
}

TEST_F(DeviceScenario, AStreamOfTheSameThreadIsCaptured) {
    Framework framework;
    const CUstream stream = framework.stream();
    open({.device_bytes = 128 * kKi, .dram_bytes = 512 * kKi, .calibrate = false});
    EXPECT_EQ(FROSTLINE_EMULATED(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
              CUDA_SUCCESS);
    const auto id = manager_->put(std::vector<std::byte>(kBytes, std::byte{5}));
    EXPECT_TRUE(id.has_value()) << id.error().message();
    CUgraph graph = nullptr;
    EXPECT_EQ(FROSTLINE_EMULATED(cuStreamEndCapture)(stream, &graph), CUDA_SUCCESS);
    if (graph != nullptr) {
        EXPECT_EQ(FROSTLINE_EMULATED(cuGraphDestroy)(graph), CUDA_SUCCESS);
    }
    if (id) expect_holds(*id, kBytes, 5);
    manager_.reset();
}

TEST_F(DeviceScenario, MappingFailsMidway) {
    const auto tier = DeviceTier::create({.context = gpu_->context(), .capacity_bytes = kMi});
    ASSERT_TRUE(tier.has_value()) << tier.error().message();
    gpu_->plant_fault("cuMemMap", 2, CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_FALSE((*tier)->reserve(kBytes).has_value());
}

TEST_F(DeviceScenario, APeerReadsATensor) {
    const auto tier =
        DeviceTier::create({.context = gpu_->context(), .capacity_bytes = kMi, .peers = {1}});
    ASSERT_TRUE(tier.has_value()) << tier.error().message();
    Framework framework(1);
    const CUstream stream = framework.stream();
    const CUdeviceptr target = Framework::allocate(kBytes, stream);
    const auto extent = (*tier)->reserve(kBytes);
    ASSERT_TRUE(extent.has_value()) << extent.error().message();
    const std::vector<std::byte> bytes(kBytes, std::byte{6});
    EXPECT_TRUE((*tier)->write(*extent, 0, bytes).has_value());
    const auto source = reinterpret_cast<CUdeviceptr>((*tier)->address(*extent));
    EXPECT_EQ(FROSTLINE_EMULATED(cuMemcpyDtoDAsync)(target, source, kBytes, stream), CUDA_SUCCESS);
    EXPECT_TRUE(Framework::holds(target, kBytes, 6, stream)) << "wrong bytes";
    Framework::free(target, stream);
    (*tier)->release(*extent);
}

}  // namespace
}  // namespace frostline
