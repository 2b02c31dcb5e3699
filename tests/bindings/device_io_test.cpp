// Proves that device memory is stored and fetched in the order of its streams: a missing wait shows
// as wrong bytes, because the emulated driver delays and reorders what nothing orders.
#include "bindings/manager.h"
#include "tests/bindings/environment.h"
#include "tests/bindings/framework.h"
#include "tests/tiers/scratch_folder.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <thread>

namespace frostline {
namespace {

constexpr std::uint64_t kMi = std::uint64_t{1} << 20;

enum class Fastest : std::uint8_t { pinned_dram, pageable_dram, device };
struct Machine {
    Fastest fastest;
    int seed;
};

std::string name_of(const testing::TestParamInfo<Machine>& info) {
    constexpr std::array<const char*, 3> kNames{"PinnedDram", "PageableDram", "Device"};
    return kNames[static_cast<std::size_t>(info.param.fastest)] + std::string("Seed") +
           std::to_string(info.param.seed);
}

class DeviceIoTest : public testing::TestWithParam<Machine> {
   protected:
    Manager open(std::uint64_t fastest_bytes, std::uint64_t swap_bytes = 64 * kMi) const {
        ManagerOptions options{.dram_bytes = fastest_bytes, .calibrate = false};
        options.pin = GetParam().fastest == Fastest::pinned_dram;
        if (GetParam().fastest == Fastest::device) options.device_bytes = fastest_bytes;
        if (swap_bytes > 0) {
            options.swap_places = {folder_.path()};
            options.swap_bytes = swap_bytes;
        }
        auto manager = Manager::open(options);
        if (!manager) {
            ADD_FAILURE() << manager.error().message();
            std::abort();
        }
        return *std::move(manager);
    }
    static const void* source(CUdeviceptr memory) { return reinterpret_cast<const void*>(memory); }
    static void* target(CUdeviceptr memory) { return reinterpret_cast<void*>(memory); }
    static TensorId put(Manager& manager, CUdeviceptr memory, std::uint64_t size_bytes,
                        CUstream stream, DeviceSource use = DeviceSource::given_back) {
        const auto id = manager.put_device(source(memory), size_bytes, stream, use);
        EXPECT_TRUE(id.has_value()) << id.error().message();
        return id.value_or(TensorId{});
    }
    static void get(Manager& manager, TensorId id, CUdeviceptr memory, std::uint64_t size_bytes,
                    CUstream stream) {
        const auto done = manager.get_device(id, target(memory), size_bytes, stream);
        EXPECT_TRUE(done.has_value()) << done.error().message();
    }
    // Into memory that queued work still writes, and which is checked behind later work.
    static bool comes_back(Manager& manager, TensorId id, std::uint64_t size_bytes,
                           unsigned char value, CUstream stream) {
        const CUdeviceptr memory = Framework::tensor(size_bytes, 0xee, stream);
        get(manager, id, memory, size_bytes, stream);
        const bool right = Framework::holds(memory, size_bytes, value, stream);
        Framework::free(memory, stream);
        return right;
    }

    EmulatedGpu gpu_{"memory=512MiB,devices=2,latency_us=100,jitter_us=500,seed=" +
                     std::to_string(GetParam().seed)};
    EnvironmentVariable driver_{"FROSTLINE_CUDA_DRIVER", FROSTLINE_EMULATOR};
    ScratchFolder folder_;
};

TEST_P(DeviceIoTest, TheSourceMayBeOverwrittenAndFreedAtOnce) {
    Framework framework;
    Manager manager = open(48 * kMi);
    const CUstream computing = framework.stream();
    const CUstream other = framework.stream();
    std::vector<TensorId> ids;
    constexpr std::uint64_t kSize = 3 * kMi + 17;
    for (unsigned char i = 1; i <= 8; ++i) {
        const CUdeviceptr memory = Framework::tensor(kSize, i, computing);
        ids.push_back(put(manager, memory, kSize, computing));
        Framework::fill(memory, kSize, 0xff, computing);
        Framework::free(memory, computing);
    }
    for (unsigned char i = 1; i <= 8; ++i) {
        EXPECT_TRUE(comes_back(manager, ids[i - 1], kSize, i, i % 2 == 0 ? computing : other)) << i;
    }
    for (const TensorId id : ids) EXPECT_TRUE(manager.drop(id).has_value());
    EXPECT_EQ(*manager.pins(), 0U);
}

TEST_P(DeviceIoTest, AKeptSourceIsTheCallersAgainInTheOrderOfTheStreamThatAsks) {
    Framework framework;
    Manager manager = open(16 * kMi);
    const CUstream computing = framework.stream();
    const CUstream freeing = framework.stream();
    const CUdeviceptr memory = Framework::tensor(kMi, 5, computing);
    const TensorId id = put(manager, memory, kMi, computing, DeviceSource::kept);
    ASSERT_TRUE(manager.release_source(id, freeing).has_value());
    Framework::fill(memory, kMi, 0xff, freeing);
    Framework::free(memory, freeing);
    EXPECT_TRUE(comes_back(manager, id, kMi, 5, computing));
    // Its copy has been seen, so it ends being pending by itself.
    while (!*manager.source_read(id)) std::this_thread::yield();
    EXPECT_TRUE(manager.release_source(id, freeing).has_value()) << "without effect";
    EXPECT_TRUE(manager.drop(id).has_value());
    EXPECT_TRUE(manager.release_source(id, freeing).has_value()) << "nor on what is gone";
}

TEST_P(DeviceIoTest, ATensorComesBackOnAnotherDevice) {
    Framework second(1);
    const CUstream there = second.stream();
    Framework first(0);
    const CUstream here = first.stream();
    Manager manager = open(16 * kMi);
    const CUdeviceptr memory = Framework::tensor(kMi, 7, here);
    const TensorId id = put(manager, memory, kMi, here);
    Framework::free(memory, here);
    second.use();
    EXPECT_TRUE(comes_back(manager, id, kMi, 7, there));
    const CUdeviceptr foreign = Framework::tensor(kMi, 8, there);
    const TensorId back = put(manager, foreign, kMi, there);
    Framework::free(foreign, there);
    first.use();
    EXPECT_TRUE(comes_back(manager, back, kMi, 8, here));
}

TEST_P(DeviceIoTest, DefaultStreamsAreStreams) {
    Framework framework;
    Manager manager = open(16 * kMi);
    for (const CUstream stream : {CUstream{nullptr}, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
        const CUdeviceptr memory = Framework::tensor(kMi, 9, stream);
        const TensorId id = put(manager, memory, kMi, stream);
        Framework::fill(memory, kMi, 0xff, stream);
        EXPECT_TRUE(comes_back(manager, id, kMi, 9, stream));
        Framework::free(memory, stream);
        EXPECT_EQ(FROSTLINE_EMULATED(cuStreamSynchronize)(stream), CUDA_SUCCESS);
    }
}

TEST_P(DeviceIoTest, SeveralThreadsMoreThanFits) {
    Manager manager = open(8 * kMi);
    std::vector<std::thread> threads;
    for (unsigned char t = 0; t < 3; ++t) {
        threads.emplace_back([&manager, t] {
            Framework framework;
            const CUstream saving = framework.stream();
            const CUstream fetching = framework.stream();
            std::vector<TensorId> ids;
            for (unsigned char i = 0; i < 6; ++i) {
                const CUdeviceptr memory = Framework::tensor(kMi + t, 16 * t + i, saving);
                ids.push_back(put(manager, memory, kMi + t, saving));
                Framework::free(memory, saving);
            }
            for (unsigned char i = 6; i-- > 0;) {
                EXPECT_TRUE(comes_back(manager, ids[i], kMi + t, 16 * t + i, fetching));
                EXPECT_TRUE(manager.drop(ids[i]).has_value());
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(*manager.pins(), 0U);
    for (const TierStats& tier : manager.stats().tiers) {
        EXPECT_LE(tier.peak_bytes, tier.budget_bytes) << tier.name;
    }
}

TEST_P(DeviceIoTest, WhatIsLargerThanTheFastestTierGoesBelow) {
    Framework framework;
    Manager manager = open(4 * kMi);
    const CUstream stream = framework.stream();
    constexpr std::uint64_t kSize = 9 * kMi + 3;
    const CUdeviceptr memory = Framework::tensor(kSize, 3, stream);
    const TensorId id = put(manager, memory, kSize, stream);
    Framework::fill(memory, kSize, 0xff, stream);
    EXPECT_TRUE(comes_back(manager, id, kSize, 3, stream));
    Framework::free(memory, stream);
}

TEST_P(DeviceIoTest, FullBudgetsAreAnErrorThatHarmsNothing) {
    Framework framework;
    Manager manager = open(4 * kMi, 0);
    const CUstream stream = framework.stream();
    const CUdeviceptr memory = Framework::tensor(2 * kMi, 4, stream);
    std::vector<TensorId> ids;
    while (true) {
        const auto id = manager.put_device(source(memory), 2 * kMi, stream);
        if (!id) {
            EXPECT_EQ(id.error().code(), Errc::no_space) << id.error().message();
            break;
        }
        ids.push_back(*id);
        ASSERT_LT(ids.size(), 20U);
    }
    Framework::fill(memory, 2 * kMi, 0xff, stream);
    Framework::free(memory, stream);
    EXPECT_GE(ids.size(), 2U);
    for (const TensorId id : ids) EXPECT_TRUE(comes_back(manager, id, 2 * kMi, 4, stream));
    EXPECT_EQ(*manager.pins(), 0U);
}

TEST_P(DeviceIoTest, C31_TheHostSeesTheBytesRightAfterwards) {
    Framework framework;
    Manager manager = open(16 * kMi);
    const CUstream stream = framework.stream();
    const CUdeviceptr memory = Framework::tensor(kMi, 6, stream);
    const std::vector<std::byte> right(kMi, std::byte{6});
    std::vector<std::byte> bytes(kMi);
    const TensorId id = put(manager, memory, kMi, stream);
    ASSERT_TRUE(manager.get(id, bytes).has_value());
    EXPECT_EQ(bytes, right);
    if (GetParam().fastest != Fastest::device) {
        const TensorId pinned_id = put(manager, memory, kMi, stream, DeviceSource::kept);
        const auto pinned = manager.pin(pinned_id, Access::read);
        ASSERT_TRUE(pinned.has_value());
        EXPECT_TRUE(std::equal(right.begin(), right.end(), pinned->bytes().begin()));
    }
    Framework::free(memory, stream);
    EXPECT_EQ(FROSTLINE_EMULATED(cuStreamSynchronize)(stream), CUDA_SUCCESS);
}

TEST_P(DeviceIoTest, WhatCannotBeMovedIsRefused) {
    Framework framework;
    Manager manager = open(16 * kMi);
    const CUstream stream = framework.stream();
    const CUdeviceptr memory = Framework::tensor(kMi, 1, stream);
    const TensorId id = put(manager, memory, kMi, stream);
    const CUstream other = framework.stream();
    const CUdeviceptr others = Framework::tensor(kMi, 2, other);
    std::vector<std::byte> host(kMi);
    const auto code = [](const auto& result) { return result ? Errc{} : result.error().code(); };
    EXPECT_EQ(code(manager.put_device(host.data(), kMi, stream)), Errc::invalid_argument);
    EXPECT_EQ(code(manager.get_device(id, host.data(), kMi, stream)), Errc::invalid_argument);
    EXPECT_EQ(code(manager.put_device(source(memory), 0, stream)), Errc::invalid_argument);
    EXPECT_EQ(code(manager.get_device(id, target(memory), kMi - 1, stream)),
              Errc::invalid_argument);
    EXPECT_EQ(code(manager.get_device(TensorId{}, target(memory), kMi, stream)), Errc::not_found);

    ASSERT_EQ(FROSTLINE_EMULATED(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
              CUDA_SUCCESS);
    EXPECT_EQ(code(manager.put_device(source(memory), kMi, stream)), Errc::unsupported);
    EXPECT_EQ(code(manager.get_device(id, target(memory), kMi, stream)), Errc::unsupported);
    // Another stream's copies go on, and disturb no capture.
    const auto beside = manager.put_device(source(others), kMi, other);
    EXPECT_EQ(code(beside), Errc{});
    CUgraph graph = nullptr;
    ASSERT_EQ(FROSTLINE_EMULATED(cuStreamEndCapture)(stream, &graph), CUDA_SUCCESS);
    EXPECT_EQ(FROSTLINE_EMULATED(cuGraphDestroy)(graph), CUDA_SUCCESS);
    EXPECT_TRUE(comes_back(manager, id, kMi, 1, stream));
    EXPECT_TRUE(comes_back(manager, *beside, kMi, 2, other));
    Framework::free(memory, stream);
    Framework::free(others, other);
    EXPECT_EQ(*manager.pins(), 0U);
}

INSTANTIATE_TEST_SUITE_P(
    Machines, DeviceIoTest,
    testing::Values(Machine{Fastest::pinned_dram, 1}, Machine{Fastest::pinned_dram, 2},
                    Machine{Fastest::pinned_dram, 3}, Machine{Fastest::pageable_dram, 1},
                    Machine{Fastest::pageable_dram, 2}, Machine{Fastest::device, 1},
                    Machine{Fastest::device, 2}, Machine{Fastest::device, 3}),
    name_of);

}  // namespace
}  // namespace frostline
