// Proves that at random, with device memory, pinned DRAM, pmem and swap beneath it, two devices,
// streams in any order and copies that are late, nothing misuses the driver, nothing leaks, and
// every byte is right. FROSTLINE_SOAK=FIRST-LAST runs that range of seeds in full; ./run soak does.
#include "bindings/manager.h"
#include "tests/bindings/device_program.h"
#include "tests/bindings/environment.h"
#include "tests/tiers/emulated_gpu.h"
#include "tests/tiers/scratch_folder.h"
#include "tests/tiers/seed.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <string>
#include <thread>
#include <vector>

namespace frostline {
namespace {

constexpr std::uint64_t kKi = 1024;
constexpr std::size_t kOperations = 10000;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t kQuickOperations = 400;
#else
constexpr std::size_t kQuickOperations = 4000;
#endif

std::string machine(std::uint64_t seed) {
    // Without delays, with short ones, and with some as long as a copy; devices that reach each
    // other and that do not.
    const char* const delays[] = {"", ",jitter_us=5", ",latency_us=10,jitter_us=40"};
    return "memory=16MiB,devices=2,granularity=4KiB,seed=" + std::to_string(seed) +
           delays[seed % 3] + (seed % 2 == 0 ? ",peer=1" : ",peer=0");
}

ManagerOptions tiers(std::uint64_t seed, bool on_device, const ScratchFolder& folder) {
    ManagerOptions options{.dram_bytes = 256 * kKi,
                           .swap_places = {folder.path()},
                           .swap_bytes = 8192 * kKi,
                           .pin = true,
                           .verify = seed % 5 != 0,
                           .calibrate = false};
    if (on_device) options.device_bytes = 320 * kKi;
    if (seed % 3 != 0) {
        options.pmem_path = folder.file("pmem");
        options.pmem_bytes = 1024 * kKi;  // the least that there can be
    }
    return options;
}

void expect_nothing_left(const Manager& manager) {
    EXPECT_EQ(*manager.pins(), 0U);
    const ManagerStats stats = manager.stats();
    EXPECT_EQ(stats.failed_moves, 0U);
    for (const TierStats& tier : stats.tiers) {
        EXPECT_LE(tier.peak_bytes, tier.budget_bytes) << tier.name;
        // Of pinned DRAM whole pieces stay resident, and count.
        if (std::string(tier.name) != "dram") {
            EXPECT_EQ(tier.used_bytes, 0U) << tier.name;
        }
        EXPECT_TRUE(tier.open) << tier.name;
    }
}

void run_seed(std::uint64_t seed, std::size_t operations) {
    SCOPED_TRACE("repeat with: ./run soak " + std::to_string(seed));
    const EnvironmentVariable driver("FROSTLINE_CUDA_DRIVER", FROSTLINE_EMULATOR);
    const ScratchFolder folder(ScratchFolder::On::memory);
    const EmulatedGpu gpu(machine(seed));
    const bool on_device = seed % 4 != 3;  // else device memory is the program's alone
    auto manager = Manager::open(tiers(seed, on_device, folder));
    ASSERT_TRUE(manager.has_value()) << manager.error().message();
    const std::size_t programs = 1 + seed / 2 % 2;
    {
        std::deque<DeviceProgram> running;
        std::vector<std::thread> threads;
        for (std::size_t i = 0; i < programs; ++i) {
            running.emplace_back(*manager, Emulator::get(), seed * 2 + i, on_device);
            threads.emplace_back(
                [program = &running.back(), each = operations / programs] { program->run(each); });
        }
        for (std::thread& thread : threads) thread.join();
        for (DeviceProgram& program : running) {
            program.check_all();
            // Some are left to the end of the manager.
            if (seed % 7 != 0) program.drop_all();
        }
    }
    const ManagerStats stats = manager->stats();
    EXPECT_GT(stats.moves, operations / 20) << "too little moved to prove anything";
    EXPECT_TRUE(manager->close().has_value());
    if (seed % 7 != 0) expect_nothing_left(*manager);
}

TEST(DeviceStress, NoByteIsWrongNothingLeaksAndNothingIsMisused) {
    const char* const soak = std::getenv("FROSTLINE_SOAK");
    if (soak == nullptr) {
        auto random = random_stream(400);
        for (int i = 0; i < 4 && !HasFailure(); ++i) {
            run_seed(between(random, 1, 1000) * 4 + static_cast<std::uint64_t>(i),
                     kQuickOperations);
        }
        return;
    }
    unsigned long long first = 1;
    unsigned long long last = 1000;
    ASSERT_EQ(std::sscanf(soak, "%llu-%llu", &first, &last), 2)
        << "FROSTLINE_SOAK is FIRST-LAST, as 1-1000";
    for (std::uint64_t seed = first; seed <= last && !HasFailure(); ++seed) {
        run_seed(seed, kOperations);
        if (!HasFailure() && (seed % 10 == 0 || seed == last)) {
            std::printf("seeds %llu to %llu: %zu operations each, all well\n", first,
                        static_cast<unsigned long long>(seed), kOperations);
            std::fflush(stdout);
        }
    }
}

}  // namespace
}  // namespace frostline
