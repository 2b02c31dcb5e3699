// The guard alone: a fault ends the body and nothing else, on any thread, again and again.
#include "tiers/emulator/kernel_guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <thread>
#include <vector>

namespace frostline::emulator {
namespace {

using ::testing::Eq;
using ::testing::Optional;

constexpr std::size_t kBytes = 1 << 16;

class NoAccess {
   public:
    NoAccess() : address_(mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
    NoAccess(const NoAccess&) = delete;
    NoAccess& operator=(const NoAccess&) = delete;
    ~NoAccess() { EXPECT_EQ(munmap(address_, kBytes), 0); }
    void* at(std::size_t offset) const { return static_cast<char*>(address_) + offset; }

   private:
    void* address_;
};

void write_byte(void* address) {
    *static_cast<volatile char*>(address) = 1;
}

std::optional<std::uintptr_t> fault_of_writing(void* address) {
    const auto fault = run_guarded(write_byte, address);
    if (!fault) return std::nullopt;
    return fault->address;
}

TEST(KernelGuard, RunsTheBody) {
    char byte = 0;
    EXPECT_THAT(fault_of_writing(&byte), Eq(std::nullopt));
    EXPECT_EQ(byte, 1);
}

TEST(KernelGuard, SaysWhichByteWasTouched) {
    const NoAccess memory;
    const auto address = reinterpret_cast<std::uintptr_t>(memory.at(4097));
    EXPECT_THAT(fault_of_writing(memory.at(4097)), Optional(address));
}

TEST(KernelGuard, CatchesOneFaultAfterAnotherOnManyThreads) {
    const NoAccess memory;
    std::vector<std::thread> threads;
    for (std::size_t thread = 0; thread < 4; ++thread) {
        threads.emplace_back([&memory, thread] {
            for (std::size_t i = 0; i < 200; ++i) {
                void* const address = memory.at(thread * 1024 + i);
                EXPECT_THAT(fault_of_writing(address),
                            Optional(reinterpret_cast<std::uintptr_t>(address)));
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
}

TEST(KernelGuardDeathTest, LeavesFaultsOutsideOfKernelsToOthers) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const NoAccess memory;
    ASSERT_NE(fault_of_writing(memory.at(0)), std::nullopt);
    EXPECT_DEATH(write_byte(memory.at(0)), "");
}

}  // namespace
}  // namespace frostline::emulator
