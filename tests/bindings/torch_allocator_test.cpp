// Proves what PyTorch relies on: what is nothing, whose an address is, what happens to addresses of
// others, that a budget holds, that figures are exact, and that memory comes back under pressure.
#include "tests/bindings/torch_fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <thread>
#include <vector>

namespace frostline {
namespace {

constexpr std::uint64_t kMi = std::uint64_t{1} << 20;

TEST(TorchAllocator, NoBytesAreNullAndNullIsNothing) {
    TorchMachine machine("memory=64MiB");
    const auto none = machine.allocator().allocate(0, 0, nullptr);
    ASSERT_TRUE(none.has_value());
    EXPECT_EQ(*none, nullptr);
    EXPECT_TRUE(machine.allocator().free(nullptr, 0, 0).has_value());
    EXPECT_EQ(*machine.allocator().used(0), nullptr) << "made for nothing";
}

TEST(TorchAllocator, WhatCannotBeIsRefusedWithWords) {
    TorchMachine machine("memory=64MiB");
    EXPECT_EQ(machine.allocator().allocate(-1, 0, nullptr).error().code(), Errc::invalid_argument);
    const auto no_device = machine.allocator().allocate(1, 7, nullptr);
    ASSERT_FALSE(no_device.has_value());
    EXPECT_THAT(no_device.error().message(), testing::HasSubstr("7"));
    EXPECT_EQ(machine.allocator().allocate(1, -1, nullptr).error().code(), Errc::invalid_argument);
    EXPECT_EQ(machine.refused(std::numeric_limits<std::int64_t>::max(), nullptr), Errc::no_space);
}

TEST(TorchAllocator, SettingsAreReadOrRefused) {
    TorchAllocator allocator;
    EXPECT_EQ(allocator.configure("lots", nullptr).error().code(), Errc::invalid_argument);
    EXPECT_EQ(allocator.configure(nullptr, "3MiB").error().code(), Errc::invalid_argument);
    EXPECT_EQ(allocator.configure("1MiB", "2MiB").error().code(), Errc::invalid_argument);
    EXPECT_TRUE(allocator.configure("1GiB", nullptr).has_value());
    EXPECT_EQ(allocator.configure("0", nullptr).error().code(), Errc::invalid_argument);
}

// What is said of the settings in the environment.
std::string refusal_of(const char* name, const char* value) {
    const EnvironmentVariable variable(name, value);
    const auto read = torch_settings_from_environment();
    return read ? std::string() : read.error().message();
}

TEST(TorchAllocator, AWrongVariableIsNamedWithItsValueAndWhatIsAllowed) {
    using testing::AllOf;
    using testing::HasSubstr;
    EXPECT_THAT(refusal_of("FROSTLINE_TORCH_BUDGET", "much"),
                AllOf(HasSubstr("FROSTLINE_TORCH_BUDGET"), HasSubstr("'much'"), HasSubstr("GiB")));
    EXPECT_THAT(
        refusal_of("FROSTLINE_TORCH_BUDGET", "1MiB"),
        AllOf(HasSubstr("FROSTLINE_TORCH_BUDGET"), HasSubstr("'1MiB'"), HasSubstr("2.0 MiB")));
    EXPECT_THAT(
        refusal_of("FROSTLINE_TORCH_CHUNK", "3MiB"),
        AllOf(HasSubstr("FROSTLINE_TORCH_CHUNK"), HasSubstr("'3MiB'"), HasSubstr("power of two")));
    EXPECT_EQ(refusal_of("FROSTLINE_TORCH_CHUNK", "4MiB"), "");
    EXPECT_EQ(refusal_of("FROSTLINE_TORCH_CHUNK", ""), "");
}

TEST(TorchAllocator, AnUnknownVariableIsNamedWithThoseThatThereAre) {
    EXPECT_THAT(refusal_of("FROSTLINE_TORCH_BUGDET", "1GiB"),
                testing::AllOf(testing::HasSubstr("FROSTLINE_TORCH_BUGDET"),
                               testing::HasSubstr("FROSTLINE_TORCH_BUDGET"),
                               testing::HasSubstr("FROSTLINE_TORCH_CHUNK")));
    EXPECT_NE(refusal_of("FROSTLINE_TORCH_", ""), "");
    const EnvironmentVariable variable("FROSTLINE_TORCH_CHUNKS", "4MiB");
    TorchAllocator allocator;
    EXPECT_EQ(allocator.configure("1GiB", "2MiB").error().code(), Errc::invalid_argument);
}

TEST(TorchAllocator, SettingsStandOnceMemoryIsInUse) {
    TorchMachine machine("memory=64MiB");
    const CUdeviceptr block = machine.allocate(kMi, nullptr);
    EXPECT_EQ(machine.allocator().configure("1GiB", nullptr).error().code(), Errc::busy);
    machine.free(block, kMi);
}

TEST(TorchAllocator, AnAddressSaysWhoseItIs) {
    TorchMachine machine("memory=64MiB,devices=2");
    const CUdeviceptr first = machine.allocate(kMi, nullptr, 0);
    const CUdeviceptr second = machine.allocate(3 * kMi, nullptr, 1);
    EXPECT_EQ(machine.allocator().owner(reinterpret_cast<void*>(second)), &machine.device(1));
    machine.free(first, kMi, 1);  // the wrong device is named
    machine.free(second, 3 * kMi, 0);
    EXPECT_EQ(machine.device(0).statistics().allocated_bytes.current, 0U);
    EXPECT_EQ(machine.device(1).statistics().allocated_bytes.freed, 3 * kMi);
}

TEST(TorchAllocator, OtherDevicesReachTheMemory) {
    TorchMachine machine("memory=64MiB,devices=2");
    const CUdeviceptr source = machine.allocate(kMi, nullptr, 0);
    const CUdeviceptr target = machine.allocate(kMi, nullptr, 1);
    Framework::fill(source, kMi, 7, nullptr);
    EXPECT_EQ(FROSTLINE_EMULATED(cuMemcpyDtoDAsync)(target, source, kMi, nullptr), CUDA_SUCCESS);
    EXPECT_TRUE(Framework::holds(target, kMi, 7, nullptr));
    machine.free(source, kMi, 0);
    machine.free(target, kMi, 1);
}

TEST(TorchAllocator, WhatIsNotOursGoesToTheDriverOnce) {
    TorchMachine machine("memory=64MiB");
    CUdeviceptr theirs = 0;
    ASSERT_EQ(FROSTLINE_EMULATED(cuMemAlloc)(&theirs, kMi), CUDA_SUCCESS);
    const std::uint64_t before = machine.emulator().calls("cuMemFree");
    machine.free(theirs, kMi);
    EXPECT_EQ(machine.emulator().calls("cuMemFree"), before + 1);
    EXPECT_EQ(machine.allocator().foreign_frees(), 1U);

    machine.emulator().plant_fault("cuMemFree", 1, CUDA_ERROR_INVALID_VALUE);
    const auto refused = machine.allocator().free(reinterpret_cast<void*>(theirs), kMi, 0);
    ASSERT_FALSE(refused.has_value());
    EXPECT_THAT(refused.error().message(), testing::HasSubstr("cuMemFree"));
    EXPECT_EQ(machine.emulator().calls("cuMemFree"), before + 2);
}

TEST(TorchAllocator, FreeingTwiceOrWithAnotherSizeChangesNothing) {
    TorchMachine machine("memory=64MiB");
    const CUdeviceptr block = machine.allocate(kMi, nullptr);
    auto* const address = reinterpret_cast<void*>(block);
    EXPECT_EQ(machine.allocator().free(address, kMi + 1, 0).error().code(), Errc::invalid_argument);
    EXPECT_EQ(machine.device().statistics().allocations.current, 1U);
    machine.free(block, kMi);
    EXPECT_EQ(machine.allocator().free(address, kMi, 0).error().code(), Errc::invalid_argument);
    EXPECT_EQ(machine.device().statistics().allocations.freed, 1U);
}

TEST(TorchAllocator, FiguresAreExact) {
    TorchMachine machine("memory=64MiB");
    const CUdeviceptr small = machine.allocate(1000, nullptr);
    const CUdeviceptr large = machine.allocate(5 * kMi, nullptr);
    machine.free(large, 5 * kMi);
    auto now = machine.device().statistics();
    EXPECT_EQ(now.allocated_bytes.current, 1000U);
    EXPECT_EQ(now.allocated_bytes.peak, 1000 + 5 * kMi);
    EXPECT_EQ(now.allocated_bytes.allocated, 1000 + 5 * kMi);
    EXPECT_EQ(now.allocated_bytes.freed, 5 * kMi);
    EXPECT_EQ(now.allocations.current, 1U);
    EXPECT_EQ(now.allocations.peak, 2U);
    EXPECT_GE(now.reserved_bytes.peak, now.reserved_bytes.current);
    EXPECT_GE(now.reserved_bytes.current, now.allocated_bytes.current);
    EXPECT_EQ(now.reserved_bytes.current % TorchMachine::kChunk, 0U);
    EXPECT_EQ(now.budget_bytes, 32 * kMi);

    machine.device().reset_peaks();
    machine.device().reset_accumulated();
    now = machine.device().statistics();
    EXPECT_EQ(now.allocated_bytes.peak, 1000U);
    EXPECT_EQ(now.allocated_bytes.allocated, 0U);
    machine.device().trim();
    now = machine.device().statistics();
    EXPECT_EQ(now.reserved_bytes.current, TorchMachine::kChunk) << "what lives needs one chunk";
    const auto living = machine.device().live();
    ASSERT_EQ(living.size(), 1U);
    EXPECT_EQ(living[0].address, small);
    EXPECT_EQ(living[0].size_bytes, 1000U);
    const auto base = machine.device().block_at(reinterpret_cast<void*>(small + 999));
    ASSERT_TRUE(base.has_value());
    EXPECT_EQ(base->address, small);
    EXPECT_FALSE(machine.device().block_at(reinterpret_cast<void*>(small + 1000)).has_value());
    machine.free(small, 1000);
}

TEST(TorchAllocator, ABudgetHoldsAndAFailureIsCounted) {
    TorchMachine machine("memory=128MiB", "16MiB");
    std::vector<CUdeviceptr> blocks;
    for (int i = 0; i < 8; ++i) blocks.push_back(machine.allocate(2 * kMi, nullptr));
    EXPECT_EQ(machine.refused(kMi, nullptr), Errc::no_space);
    auto now = machine.device().statistics();
    EXPECT_EQ(now.out_of_memory, 1U);
    EXPECT_EQ(now.reserved_bytes.current, 16 * kMi);
    machine.free(blocks.back(), 2 * kMi);
    blocks.back() = machine.allocate(2 * kMi, nullptr);
    for (const CUdeviceptr each : blocks) machine.free(each, 2 * kMi);
    EXPECT_EQ(machine.device().statistics().reserved_bytes.peak, 16 * kMi);
}

// As PyTorch has it: what was served at once, from idle memory or new, is none, and neither is what
// failed.
TEST(TorchAllocator, ARetryIsWhatWasServedOnlyAfterMemoryWasGivenUp) {
    TorchMachine machine("memory=64MiB", "16MiB");
    const auto retries = [&] { return machine.device().statistics().retries; };
    machine.free(machine.allocate(16 * kMi, nullptr), 16 * kMi);
    machine.free(machine.allocate(16 * kMi, nullptr), 16 * kMi);
    EXPECT_EQ(retries(), 0U);
    const CUdeviceptr small = machine.allocate(kMi / 16, nullptr);  // lies in chunks of its own
    EXPECT_EQ(retries(), 1U);
    EXPECT_EQ(machine.refused(15 * kMi, nullptr), Errc::no_space);
    EXPECT_EQ(machine.refused(17 * kMi, nullptr), Errc::no_space);
    EXPECT_EQ(retries(), 1U);
    EXPECT_EQ(machine.device().statistics().out_of_memory, 2U);
    machine.free(small, kMi / 16);
    machine.device().reset_accumulated();
    EXPECT_EQ(retries(), 0U);
}

TEST(TorchAllocator, ARequestThatHadToWaitForAStreamIsARetry) {
    TorchMachine machine("memory=64MiB", "8MiB");
    CUstream home = machine.stream();
    CUstream other = machine.stream();
    const CUdeviceptr block = machine.allocate(6 * kMi, home);
    CUdeviceptr next = 0;
    {
        StreamGate gate(other);
        ASSERT_TRUE(machine.device().record_stream(reinterpret_cast<void*>(block), other));
        machine.free(block, 6 * kMi);
        const std::uint64_t before = machine.emulator().calls("cuEventSynchronize");
        std::thread opener([&] {  // once the heap waits
            while (machine.emulator().calls("cuEventSynchronize") == before) {
                std::this_thread::yield();
            }
            gate.open();
        });
        next = machine.allocate(6 * kMi, home);
        opener.join();
    }
    EXPECT_EQ(machine.device().statistics().retries, 1U);
    machine.free(next, 6 * kMi);
}

TEST(TorchAllocator, AFractionOfTheMemoryIsABudget) {
    TorchMachine machine("memory=64MiB", "32MiB");
    EXPECT_FALSE(machine.device().set_memory_fraction(1.5).has_value());
    EXPECT_FALSE(machine.device().set_memory_fraction(-0.1).has_value());
    ASSERT_TRUE(machine.device().set_memory_fraction(0.125).has_value());
    EXPECT_EQ(machine.device().statistics().budget_bytes, 8 * kMi);
    EXPECT_EQ(machine.refused(10 * kMi, nullptr), Errc::no_space);
    ASSERT_TRUE(machine.device().set_memory_fraction(1.0).has_value());
    EXPECT_EQ(machine.device().statistics().budget_bytes, 32 * kMi) << "never more than configured";
    machine.free(machine.allocate(10 * kMi, nullptr), 10 * kMi);
}

TEST(TorchAllocator, MemoryThatADriverRefusesIsAFailureAndNothingIsLost) {
    TorchMachine machine("memory=64MiB");
    machine.free(machine.allocate(kMi, nullptr), kMi);
    machine.device().trim();
    machine.emulator().plant_fault("cuMemMap", 1, CUDA_ERROR_UNKNOWN);
    EXPECT_FALSE(machine.allocator().allocate(20 * kMi, 0, nullptr).has_value());
    machine.free(machine.allocate(20 * kMi, nullptr), 20 * kMi);
    EXPECT_EQ(machine.device().statistics().allocations.current, 0U);
}

TEST(TorchAllocator, MemoryThatOthersTookIsNoSpace) {
    TorchMachine machine("memory=64MiB", "60MiB");
    CUdeviceptr theirs = 0;
    ASSERT_EQ(FROSTLINE_EMULATED(cuMemAlloc)(&theirs, 48 * kMi), CUDA_SUCCESS);
    EXPECT_EQ(machine.refused(32 * kMi, nullptr), Errc::no_space);
    ASSERT_EQ(FROSTLINE_EMULATED(cuMemFree)(theirs), CUDA_SUCCESS);
    machine.free(machine.allocate(32 * kMi, nullptr), 32 * kMi);
}

TEST(TorchAllocator, MemoryThatAnotherStreamWorksOnIsNotHandedOut) {
    TorchMachine machine("memory=64MiB", "8MiB");
    CUstream home = machine.stream();
    CUstream other = machine.stream();
    const CUdeviceptr block = machine.allocate(6 * kMi, home);
    CUdeviceptr next = 0;
    {
        StreamGate gate(other);
        Framework::fill(block, 6 * kMi, 1, other);
        ASSERT_TRUE(machine.device().record_stream(reinterpret_cast<void*>(block), other));
        machine.free(block, 6 * kMi);
        EXPECT_EQ(machine.device().statistics().pending_bytes, 6 * kMi);
        std::thread opener([&] { gate.open(); });
        next = machine.allocate(6 * kMi, home);  // waits: the budget has no room for both
        opener.join();
    }
    Framework::fill(next, 6 * kMi, 2, home);
    EXPECT_EQ(FROSTLINE_EMULATED(cuStreamSynchronize)(other), CUDA_SUCCESS);
    EXPECT_TRUE(Framework::holds(next, 6 * kMi, 2, home));
    machine.free(next, 6 * kMi);
}

// Blocks travel between threads with work queued, as tensors do between a program and autograd.
TEST(TorchAllocator, AnyThreadFreesWithWorkQueued) {
    TorchMachine machine("memory=256MiB,jitter_us=100", "128MiB");
    constexpr int kThreads = 4;
    struct Block {
        CUdeviceptr address;
        std::uint64_t size_bytes;
    };
    std::mutex mutex;
    std::vector<Block> shared;
    std::vector<CUstream> streams;
    for (int i = 0; i < kThreads; ++i) streams.push_back(machine.stream());
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
        threads.emplace_back([&, i] {
            const Framework here;
            std::mt19937 random(static_cast<unsigned>(i));
            for (int round = 0; round < 200; ++round) {
                const std::uint64_t size_bytes = 1 + random() % (std::uint64_t{1} << random() % 21);
                const CUdeviceptr address =
                    machine.allocate(size_bytes, streams[static_cast<std::size_t>(i)]);
                Framework::fill(address, size_bytes, static_cast<unsigned char>(i),
                                streams[static_cast<std::size_t>(i)]);
                Block freed{};
                {
                    const std::lock_guard lock(mutex);
                    shared.push_back({address, size_bytes});
                    if (shared.size() > 16) {
                        std::swap(shared[random() % shared.size()], shared.back());
                        freed = shared.back();
                        shared.pop_back();
                    }
                }
                if (freed.address != 0) machine.free(freed.address, freed.size_bytes);
            }
        });
    }
    for (std::thread& each : threads) each.join();
    for (const Block& each : shared) machine.free(each.address, each.size_bytes);
    const auto now = machine.device().statistics();
    EXPECT_EQ(now.allocations.allocated, 200U * kThreads);
    EXPECT_EQ(now.allocations.current, 0U);
    EXPECT_EQ(now.allocated_bytes.current, 0U);
}

}  // namespace
}  // namespace frostline
