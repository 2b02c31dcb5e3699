// Proves that storing and fetching device memory does not make the host wait for a stream's work,
// nor one stream for another's. A wait that should not be there would last for ever, because the
// streams are held up until the calls have returned.
#include "bindings/manager.h"
#include "tests/bindings/environment.h"
#include "tests/bindings/framework.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>

namespace frostline {
namespace {

constexpr std::uint64_t kMi = std::uint64_t{1} << 20;

class DeviceIoWaitingTest : public testing::TestWithParam<bool> {
   protected:
    static Manager open(std::uint64_t fastest_bytes) {
        ManagerOptions options{.dram_bytes = fastest_bytes, .pin = true, .calibrate = false};
        if (GetParam()) options.device_bytes = fastest_bytes;
        auto manager = Manager::open(options);
        if (!manager) {
            ADD_FAILURE() << manager.error().message();
            std::abort();
        }
        return *std::move(manager);
    }
    static Result<TensorId> put(Manager& manager, CUdeviceptr memory, CUstream stream,
                                DeviceSource use = DeviceSource::given_back) {
        return manager.put_device(reinterpret_cast<void*>(memory), kMi, stream, use);
    }
    static Result<void> get(Manager& manager, TensorId id, CUdeviceptr memory, CUstream stream) {
        return manager.get_device(id, reinterpret_cast<void*>(memory), kMi, stream);
    }

    EmulatedGpu gpu_{"memory=256MiB"};
    EnvironmentVariable driver_{"FROSTLINE_CUDA_DRIVER", FROSTLINE_EMULATOR};
};

TEST_P(DeviceIoWaitingTest, PutAndGetReturnWhileTheStreamIsBusy) {
    Framework framework;
    Manager manager = open(16 * kMi);
    const CUstream stream = framework.stream();
    const CUdeviceptr memory = Framework::tensor(kMi, 1, stream);
    const CUdeviceptr later = Framework::tensor(kMi, 0xff, stream);
    {
        StreamGate gate(stream);
        Framework::fill(memory, kMi, 2, stream);
        const auto id = put(manager, memory, stream);
        ASSERT_TRUE(id.has_value()) << id.error().message();
        ASSERT_TRUE(get(manager, *id, later, stream).has_value());
        EXPECT_FALSE(Framework::is_idle(stream));
        EXPECT_FALSE(*manager.source_read(*id)) << "what was to be stored is not there yet";
    }
    EXPECT_TRUE(Framework::holds(later, kMi, 2, stream));
    Framework::free(memory, stream);
    Framework::free(later, stream);
}

TEST_P(DeviceIoWaitingTest, AKeptSourceMakesItsStreamWaitForNothing) {
    Framework framework;
    Manager manager = open(16 * kMi);
    const CUstream writing = framework.stream();
    const CUstream freeing = framework.stream();
    const CUdeviceptr memory = Framework::tensor(kMi, 1, writing);
    {
        StreamGate gate(writing);
        const auto id = put(manager, memory, writing, DeviceSource::kept);
        ASSERT_TRUE(id.has_value());
        ASSERT_TRUE(manager.release_source(*id, freeing).has_value());
        EXPECT_FALSE(Framework::is_idle(freeing)) << "it waits for the copy, and the host does not";
    }
    Framework::free(memory, freeing);
}

TEST_P(DeviceIoWaitingTest, ABusyStreamHoldsUpNoOther) {
    Framework framework;
    Manager manager = open(8 * kMi);
    const CUstream busy = framework.stream();
    const CUstream idle = framework.stream();
    const CUdeviceptr held_up = Framework::tensor(kMi, 1, busy);
    const CUdeviceptr memory = Framework::tensor(kMi, 2, idle);
    {
        StreamGate gate(busy);
        const auto first = put(manager, held_up, busy);
        ASSERT_TRUE(first.has_value());
        // More than there is room for: each waits until the pin of one before has ended.
        for (int i = 0; i < 20; ++i) {
            const auto id = put(manager, memory, idle);
            ASSERT_TRUE(id.has_value()) << id.error().message();
            ASSERT_TRUE(get(manager, *id, memory, idle).has_value());
            ASSERT_TRUE(manager.drop(*id).has_value());
        }
        EXPECT_TRUE(Framework::holds(memory, kMi, 2, idle));
        EXPECT_FALSE(Framework::is_idle(busy));
    }
    Framework::free(held_up, busy);
    Framework::free(memory, idle);
}

TEST_P(DeviceIoWaitingTest, MoreStreamsThanLanes) {
    Framework framework;
    Manager manager = open(32 * kMi);
    std::array<CUstream, 20> streams{};
    for (CUstream& each : streams) each = framework.stream();
    const CUdeviceptr target = Framework::tensor(kMi, 0xff, streams[0]);
    for (std::size_t i = 0; i < streams.size(); ++i) {
        const auto value = static_cast<unsigned char>(i);
        const CUdeviceptr memory = Framework::tensor(kMi, value, streams[i]);
        const auto id = put(manager, memory, streams[i]);
        ASSERT_TRUE(id.has_value()) << id.error().message();
        Framework::free(memory, streams[i]);
        ASSERT_TRUE(get(manager, *id, target, streams[0]).has_value());
        EXPECT_TRUE(Framework::holds(target, kMi, value, streams[0]));
        ASSERT_TRUE(manager.drop(*id).has_value());
    }
    Framework::free(target, streams[0]);
}

TEST_P(DeviceIoWaitingTest, APinEndsWithTheWorkThatUsesIt) {
    Framework framework;
    Manager manager = open(4 * kMi);
    const CUstream stream = framework.stream();
    auto made = manager.allocate(3 * kMi);
    ASSERT_TRUE(made.has_value());
    EXPECT_EQ(*manager.pins(), 1U);
    {
        StreamGate gate(stream);
        if (GetParam()) {  // with host memory, work on it is over when its owner says so
            const auto address = reinterpret_cast<CUdeviceptr>(made->pin.bytes().data());
            Framework::fill(address, 3 * kMi, 7, stream);
        }
        made->pin.release_after(stream);
        EXPECT_TRUE(made->pin.bytes().empty());
        EXPECT_EQ(*manager.pins(), 0U) << "it is nobody's to end any more";
        EXPECT_TRUE(manager.drop(made->id).has_value());
    }
    // Room for this is where the first one lay, once the stream has got past it.
    EXPECT_TRUE(manager.allocate(3 * kMi).has_value());
}

TEST_P(DeviceIoWaitingTest, ClosingWaitsForCopiesThatAreUnderWay) {
    Framework framework;
    Manager manager = open(16 * kMi);
    const CUstream stream = framework.stream();
    const CUdeviceptr memory = Framework::tensor(kMi, 1, stream);
    std::thread closing;
    {
        StreamGate gate(stream);
        ASSERT_TRUE(put(manager, memory, stream).has_value());
        closing = std::thread([&manager] { EXPECT_TRUE(manager.close().has_value()); });
    }
    closing.join();
    Framework::free(memory, stream);
}

INSTANTIATE_TEST_SUITE_P(Tiers, DeviceIoWaitingTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Device" : "PinnedDram"; });

}  // namespace
}  // namespace frostline
