// Proves that work which fails, or is captured in a graph, is not taken for work that is done: what
// was never written is an error to whoever asks for it, and what a graph names stays where it is.
#include "bindings/manager.h"
#include "tests/bindings/environment.h"
#include "tests/bindings/framework.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace frostline {
namespace {

constexpr std::uint64_t kMi = std::uint64_t{1} << 20;

class DeviceIoLossTest : public testing::Test {
   protected:
    static Manager open(const ManagerOptions& options) {
        auto manager = Manager::open(options);
        if (!manager) {
            ADD_FAILURE() << manager.error().message();
            std::abort();
        }
        return *std::move(manager);
    }
    static void* address(CUdeviceptr memory) { return reinterpret_cast<void*>(memory); }

    EnvironmentVariable driver_{"FROSTLINE_CUDA_DRIVER", FROSTLINE_EMULATOR};
    EmulatedGpu gpu_{"memory=128MiB,granularity=64KiB"};
};

// As after a kernel that faulted: the copy was queued, and never made.
TEST_F(DeviceIoLossTest, WhatWasNeverCopiedIsAnErrorAndNotOldBytes) {
    Framework framework;
    const CUstream stream = framework.stream();
    {
        Manager manager =
            open({.dram_bytes = 16 * kMi, .pin = true, .verify = true, .calibrate = false});
        const CUdeviceptr memory = Framework::tensor(kMi, 7, stream);
        std::optional<Result<TensorId>> id;
        {
            StreamGate gate(stream);
            id = manager.put_device(address(memory), kMi, stream);
            ASSERT_TRUE(id->has_value()) << id->error().message();
            // Waits first: whoever's query fails goes on to wait at once.
            for (unsigned nth = 1; nth <= 4; ++nth) {
                gpu_->plant_fault("cuEventSynchronize", nth, CUDA_ERROR_ILLEGAL_ADDRESS);
            }
            gpu_->plant_fault("cuEventQuery", 1, CUDA_ERROR_ILLEGAL_ADDRESS);
            while (!*manager.source_read(**id)) std::this_thread::yield();
        }
        // A device that failed copies no more; this one only said so, and does.
        ASSERT_EQ(FROSTLINE_EMULATED(cuCtxSynchronize)(), CUDA_SUCCESS);
        std::vector<std::byte> bytes(kMi);
        for (int i = 0; i < 2; ++i) {
            const auto got = manager.get(**id, bytes);
            ASSERT_FALSE(got.has_value()) << "bytes that nobody wrote";
            EXPECT_NE(std::string(got.error().message()).find("ILLEGAL_ADDRESS"),
                      std::string::npos);
            EXPECT_FALSE(manager.pin(**id, Access::read).has_value());
            EXPECT_FALSE(manager.get_device(**id, address(memory), kMi, stream).has_value());
        }
        EXPECT_TRUE(manager.drop(**id).has_value());
        // Its slot is another tensor's then, and good.
        const auto next = manager.put(bytes);
        ASSERT_TRUE(next.has_value());
        EXPECT_TRUE(manager.get(*next, bytes).has_value());
        Framework::free(memory, stream);
    }
}

TEST_F(DeviceIoLossTest, C01_WhatAGraphNamesStaysWhereItIs) {
    Framework framework;
    const CUstream stream = framework.stream();
    {
        Manager manager =
            open({.device_bytes = 4 * kMi, .dram_bytes = 16 * kMi, .calibrate = false});
        auto made = manager.allocate(kMi);
        ASSERT_TRUE(made.has_value()) << made.error().message();
        const auto at = reinterpret_cast<CUdeviceptr>(made->pin.bytes().data());
        ASSERT_EQ(FROSTLINE_EMULATED(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_RELAXED),
                  CUDA_SUCCESS);
        Framework::fill(at, kMi, 5, stream);
        made->pin.release_after(stream);
        CUgraph graph = nullptr;
        ASSERT_EQ(FROSTLINE_EMULATED(cuStreamEndCapture)(stream, &graph), CUDA_SUCCESS)
            << "releasing spoilt the capture";
        CUgraphExec program = nullptr;
        ASSERT_EQ(FROSTLINE_EMULATED(cuGraphInstantiateWithFlags)(&program, graph, 0),
                  CUDA_SUCCESS);
        // More than fits beside it: everything else has to move.
        for (int i = 0; i < 12; ++i) {
            const auto other = manager.put(std::vector<std::byte>(kMi, std::byte{9}));
            ASSERT_TRUE(other.has_value()) << other.error().message();
        }
        ASSERT_EQ(FROSTLINE_EMULATED(cuGraphLaunch)(program, stream), CUDA_SUCCESS);
        ASSERT_EQ(FROSTLINE_EMULATED(cuStreamSynchronize)(stream), CUDA_SUCCESS);
        std::vector<std::byte> bytes(kMi);
        ASSERT_TRUE(manager.get(made->id, bytes).has_value());
        EXPECT_EQ(bytes, std::vector<std::byte>(kMi, std::byte{5}));
        EXPECT_EQ(*manager.pins(), 0U) << "it is nobody's pin any more";
        EXPECT_EQ(FROSTLINE_EMULATED(cuGraphExecDestroy)(program), CUDA_SUCCESS);
        EXPECT_EQ(FROSTLINE_EMULATED(cuGraphDestroy)(graph), CUDA_SUCCESS);
    }
}

// What it holds stays readable, and the tiers below go on.
TEST_F(DeviceIoLossTest, ADeviceTierThatFailedIsPassedOver) {
    // What cannot be unmapped is the driver's for good.
    gpu_->restart("memory=128MiB,granularity=64KiB,leaks=0");
    Framework framework;
    const CUstream stream = framework.stream();
    const CUdeviceptr memory = Framework::allocate(kMi, stream);
    {
        Manager manager = open(
            {.device_bytes = 2 * kMi, .dram_bytes = 16 * kMi, .verify = true, .calibrate = false});
        std::vector<TensorId> ids;
        const auto put = [&](unsigned char value) {
            Framework::fill(memory, kMi, value, stream);
            const auto id = manager.put_device(address(memory), kMi, stream);
            ASSERT_TRUE(id.has_value()) << id.error().message();
            ids.push_back(*id);
        };
        gpu_->plant_fault("cuMemUnmap", 1, CUDA_ERROR_ILLEGAL_ADDRESS);
        for (unsigned char i = 0; i < 8; ++i) put(i);
        ASSERT_FALSE(manager.stats().tiers[0].open) << "nothing was unmapped";
        for (unsigned char i = 0; i < 8; ++i) {
            Framework::fill(memory, kMi, 0xff, stream);
            const auto got = manager.get_device(ids[i], address(memory), kMi, stream);
            ASSERT_TRUE(got.has_value()) << got.error().message();
            EXPECT_TRUE(Framework::holds(memory, kMi, i, stream)) << int{i};
        }
        const auto made = manager.allocate(kMi);
        ASSERT_FALSE(made.has_value());
        EXPECT_EQ(made.error().code(), Errc::closed);
        EXPECT_NE(std::string(made.error().message()).find("cuMemUnmap"), std::string::npos)
            << made.error().message();
        EXPECT_TRUE(manager.close().has_value());
        EXPECT_FALSE(manager.put_device(address(memory), kMi, stream).has_value());
        for (unsigned char i = 0; i < 8; ++i) {
            ASSERT_TRUE(manager.get_device(ids[i], address(memory), kMi, stream).has_value());
            EXPECT_TRUE(Framework::holds(memory, kMi, i, stream)) << int{i};
        }
    }
    Framework::free(memory, stream);
    ASSERT_EQ(FROSTLINE_EMULATED(cuStreamSynchronize)(stream), CUDA_SUCCESS);
}

// The owner of an adopted buffer lets go of the last manager while it gets the buffer back, which
// may be on the thread that waits for streams.
TEST_F(DeviceIoLossTest, AManagerMayEndOnTheThreadThatWaitsForStreams) {
    Framework framework;
    const CUstream stream = framework.stream();
    struct Owner {
        std::vector<std::byte> buffer = std::vector<std::byte>(kMi, std::byte{3});
        std::optional<Manager> manager;
        std::promise<void> released;
    };
    const auto owner = std::make_unique<Owner>();
    owner->manager = open({.dram_bytes = 16 * kMi, .calibrate = false});
    const auto release = [](void* user, std::byte*, std::uint64_t) {
        auto& mine = *static_cast<Owner*>(user);
        mine.manager.reset();
        mine.released.set_value();
    };
    const auto id = owner->manager->adopt(owner->buffer, {release, owner.get()});
    ASSERT_TRUE(id.has_value()) << id.error().message();
    const CUdeviceptr target = Framework::allocate(kMi, stream);
    auto released = owner->released.get_future();
    {
        StreamGate gate(stream);
        ASSERT_TRUE(owner->manager->get_device(*id, address(target), kMi, stream).has_value());
        ASSERT_TRUE(owner->manager->drop(*id).has_value());
    }
    released.wait();
    EXPECT_TRUE(Framework::holds(target, kMi, 3, stream));
    Framework::free(target, stream);
    EXPECT_EQ(FROSTLINE_EMULATED(cuStreamSynchronize)(stream), CUDA_SUCCESS);
    // The manager ends on a thread of its own meanwhile; the last that it does with the driver is
    // to give the context back, which the framework still has.
    while (gpu_->calls("cuDevicePrimaryCtxRelease") + 1 < gpu_->calls("cuDevicePrimaryCtxRetain")) {
        std::this_thread::yield();
    }
}

// Workers that go on while the driver ends would touch memory that is gone: about one time in five.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kRounds = 5;
#else
constexpr int kRounds = 30;
#endif

TEST(DeviceIoExitDeathTest, AProcessMayEndWithAManagerOpenAndTensorsMoving) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const auto leave_in_the_middle = [] {
        const EnvironmentVariable driver("FROSTLINE_CUDA_DRIVER", FROSTLINE_EMULATOR);
        Emulator::get().restart("memory=128MiB,granularity=64KiB,d2h_bytes_per_s=1000000000");
        auto manager = Manager::open({.device_bytes = 2 * kMi,
                                      .dram_bytes = kMi,
                                      .swap_places = {"/tmp"},
                                      .verify = true,
                                      .calibrate = false});
        if (!manager) std::exit(1);
        for (int i = 0; i < 24; ++i) {
            if (!manager->put(std::vector<std::byte>(kMi, std::byte{9}))) std::exit(2);
        }
        std::exit(0);  // which destroys no local object
    };
    for (int round = 0; round < kRounds; ++round) {
        EXPECT_EXIT(leave_in_the_middle(), testing::ExitedWithCode(0), "");
    }
}

}  // namespace
}  // namespace frostline
