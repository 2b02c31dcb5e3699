// Proves that staging is made when it is wanted, of huge pages that the driver knows, near the GPU,
// is counted until the driver has it back, never reaches a forked child, and is done without where
// something is refused.
#include "tiers/pinned_staging.h"
#include "tests/tiers/emulated_gpu.h"
#include "tests/tiers/faulty_system_calls.h"
#include "tests/tiers/huge_pages.h"
#include "tests/tiers/registered_memory.h"
#include "tests/tiers/tier_specimen.h"

#include <gtest/gtest.h>
#include <numaif.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <string>
#include <utility>

namespace frostline {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

struct Policy {
    int mode = -1;
    NodeMask nodes{};
    friend bool operator==(const Policy&, const Policy&) = default;
};
Policy policy_now() {
    Policy now;
    EXPECT_EQ(get_mempolicy(&now.mode, now.nodes.data(), kMaxNodes, nullptr, 0), 0);
    return now;
}

// The driver's functions that touch pages for the first time, watched.
Policy policy_when_made;
decltype(CudaFunctions::cuMemHostRegister) original_register = nullptr;
CUresult watched_register(void* memory, std::size_t size, unsigned flags) {
    policy_when_made = policy_now();
    return original_register(memory, size, flags);
}
decltype(CudaFunctions::cuMemHostAlloc) original_alloc = nullptr;
CUresult watched_alloc(void** memory, std::size_t size, unsigned flags) {
    policy_when_made = policy_now();
    return original_alloc(memory, size, flags);
}
CudaDriver watched(const CudaDriver& driver) {
    original_register = driver.cuMemHostRegister;
    original_alloc = driver.cuMemHostAlloc;
    CudaDriver changed = driver;
    changed.cuMemHostRegister = watched_register;
    changed.cuMemHostAlloc = watched_alloc;
    return changed;
}

// What a forked child returns, or -1 if it was killed.
int in_child(const std::function<int()>& work) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(work());
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool is_mapped(std::span<const std::byte> memory) {
    return ::msync(const_cast<std::byte*>(memory.data()), memory.size(), MS_ASYNC) == 0;
}

class PinnedStagingTest : public testing::Test {
   protected:
    // Of which nothing is registered.
    static constexpr std::uint64_t kTooLittle = kMiB;

    PinnedStaging staging(int numa_node = kNoNode) const {
        return PinnedStaging(context_, numa_node, faulty_system_calls());
    }
    bool known_to_the_driver(std::span<const std::byte> memory) const {
        return registered_bytes(driver_, memory) == memory.size();
    }
    std::uint64_t calls(const char* function) const { return gpu_->calls(function); }

    EmulatedGpu gpu_{"memory=64MiB"};
    CudaDriver driver_ = watched(gpu_->driver());
    std::shared_ptr<const CudaContext> context_ = *CudaContext::create(driver_, 0);
};

TEST_F(PinnedStagingTest, IsOfHugePagesThatTheDriverKnows) {
    PinnedStaging staging = this->staging();
    auto page = staging.take();
    ASSERT_TRUE(page.has_value());
    EXPECT_EQ(page->bytes.size(), kHugePageBytes);
    EXPECT_TRUE(known_to_the_driver(page->bytes));
    expect_huge_pages(page->bytes.data());
    EXPECT_EQ(calls("cuMemHostAlloc"), 0U);
    const std::span<std::byte> bytes = page->bytes;
    staging.give(*std::move(page));
    EXPECT_EQ(registered_bytes(driver_, bytes), 0U);
    EXPECT_FALSE(is_mapped(bytes));
}

TEST_F(PinnedStagingTest, ADriverThatRegistersNothingAllocatesIt) {
    gpu_->limit_registration(kTooLittle);
    PinnedStaging staging = this->staging();
    auto allocated = staging.take();
    ASSERT_TRUE(allocated.has_value());
    EXPECT_EQ(calls("cuMemHostAlloc"), 1U);
    EXPECT_EQ(allocated->bytes.size(), kHugePageBytes);
    EXPECT_TRUE(known_to_the_driver(allocated->bytes));
    gpu_->limit_registration(0);
    auto registered = staging.take();
    ASSERT_TRUE(registered.has_value());
    EXPECT_EQ(calls("cuMemHostAlloc"), 1U) << "it is asked for each page";
    staging.give(*std::move(allocated));
    EXPECT_EQ(calls("cuMemFreeHost"), 1U);
    staging.give(*std::move(registered));
    EXPECT_EQ(calls("cuMemFreeHost"), 1U);
    EXPECT_EQ(calls("cuMemHostUnregister"), 1U);
}

TEST_F(PinnedStagingTest, IsCountedWhileItIsPinned) {
    PinnedStaging staging = this->staging();
    EXPECT_EQ(staging.bytes(), 0U);
    auto first = staging.take();
    gpu_->limit_registration(kTooLittle);
    auto second = staging.take();
    ASSERT_TRUE(first && second);
    EXPECT_EQ(staging.bytes(), 2 * kHugePageBytes);
    staging.give(*std::move(second));
    EXPECT_EQ(staging.bytes(), kHugePageBytes);
    staging.give(*std::move(first));
    EXPECT_EQ(staging.bytes(), 0U);
}

TEST_F(PinnedStagingTest, AfterARefusalTheNextTrySucceeds) {
    PinnedStaging staging = this->staging();
    gpu_->plant_fault("cuMemHostRegister", 1, CUDA_ERROR_OUT_OF_MEMORY);
    gpu_->plant_fault("cuMemHostAlloc", 1, CUDA_ERROR_OUT_OF_MEMORY);
    const auto refused = staging.take();
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code(), Errc::no_space);
    EXPECT_NE(std::string(refused.error().message()).find("cuMemHostAlloc"), std::string::npos);
    EXPECT_EQ(staging.bytes(), 0U);
    auto page = staging.take();
    ASSERT_TRUE(page.has_value());
    EXPECT_TRUE(known_to_the_driver(page->bytes));
    staging.give(*std::move(page));
}

TEST_F(PinnedStagingTest, WhatTheDriverDoesNotLetGoOfStaysMappedAndCounted) {
    PinnedStaging staging = this->staging();
    auto page = staging.take();
    ASSERT_TRUE(page.has_value());
    const std::span<std::byte> bytes = page->bytes;
    gpu_->plant_fault("cuMemHostUnregister", 1, CUDA_ERROR_UNKNOWN);
    staging.give(*std::move(page));
    EXPECT_EQ(staging.bytes(), kHugePageBytes) << "it is pinned still";
    EXPECT_TRUE(known_to_the_driver(bytes));
    EXPECT_TRUE(is_mapped(bytes));
    EXPECT_TRUE(context_->run([&] {
        return driver_.check("cuMemHostUnregister", driver_.cuMemHostUnregister(bytes.data()));
    }));
}

TEST_F(PinnedStagingTest, ComesFromTheNodeOfTheGpu) {
    const Policy before = policy_now();
    PinnedStaging staging = this->staging(0);
    NodeMask first_node{};
    first_node[0] = 1;
    for (const std::uint64_t limit : {std::uint64_t{0}, kTooLittle}) {
        gpu_->limit_registration(limit);
        policy_when_made = {};
        auto page = staging.take();
        ASSERT_TRUE(page.has_value());
        EXPECT_EQ(policy_when_made, (Policy{MPOL_PREFERRED, first_node})) << limit;
        EXPECT_EQ(policy_now(), before) << "the thread's own policy is back";
        staging.give(*std::move(page));
    }
}

TEST_F(PinnedStagingTest, DoesWithoutWhatTheKernelRefuses) {
    for (const auto& [call, nth] : {std::pair(Call::get_mempolicy, 1U),
                                    {Call::set_mempolicy, 1U},
                                    {Call::madvise, 1U},
                                    {Call::madvise, 2U},
                                    {Call::mmap, 1U}}) {
        const FaultInjection fault({.call = call, .nth = nth, .error = EPERM});
        PinnedStaging staging = this->staging(0);
        auto page = staging.take();
        ASSERT_TRUE(page.has_value()) << name(call);
        EXPECT_TRUE(known_to_the_driver(page->bytes)) << name(call);
        EXPECT_EQ(fault.injected(), 1U);
        staging.give(*std::move(page));
    }
}

// ThreadSanitizer answers for its own view of a child's memory.
#if !defined(__SANITIZE_THREAD__)
TEST_F(PinnedStagingTest, AForkedChildDoesNotHaveIt) {
    PinnedStaging staging = this->staging();
    for (const std::uint64_t limit : {std::uint64_t{0}, kTooLittle}) {
        gpu_->limit_registration(limit);
        auto page = staging.take();
        ASSERT_TRUE(page.has_value());
        const auto mapped = [&] { return is_mapped(page->bytes) ? 1 : errno == ENOMEM ? 2 : 3; };
        EXPECT_EQ(mapped(), 1);
        EXPECT_EQ(in_child(mapped), 2) << limit;
        staging.give(*std::move(page));
    }
}
#endif

// The other half of the rule: what holds a program's data, a child finds as its parent had it.
TEST_F(PinnedStagingTest, AForkedChildHasWhatRegisteredMemoryHeld) {
    const auto pins = *HostRegistration::create({.context = context_});
    const auto dram = *DramTier::create({.capacity_bytes = 8 * kMiB, .pin_for_device = pins.get()});
    const Extent extent = *dram->reserve(kMiB);
    ASSERT_TRUE(pins->piece_from(dram->address(extent)).registered);
    const Bytes content(kMiB, std::byte{42});
    ASSERT_TRUE(dram->write(extent, 0, content).has_value());
    EXPECT_EQ(in_child([&] {
                  return std::memcmp(dram->address(extent), content.data(), kMiB) == 0 ? 7 : 8;
              }),
              7);
    dram->release(extent);
}

TEST_F(PinnedStagingTest, ADeviceTierSaysHowMuchItHas) {
    const auto tier = *DeviceTier::create({.context = context_, .capacity_bytes = 32 * kMiB});
    {
        const auto queue = *tier->open_queue();
        EXPECT_EQ(tier->usage().staging_bytes, 0U) << "nothing was copied yet";
        const std::span<std::byte> buffer = *queue->staging(3);
        EXPECT_EQ(queue->staging(3)->data(), buffer.data()) << "always the same";
        EXPECT_EQ(tier->usage().staging_bytes, kHugePageBytes);
        const std::span<std::byte> before = *queue->staging(2);
        EXPECT_EQ(before.data() + before.size(), buffer.data()) << "they share a page";
        EXPECT_EQ(tier->usage().staging_bytes, kHugePageBytes);
        ASSERT_TRUE(queue->staging(4).has_value());
        EXPECT_EQ(tier->usage().staging_bytes, 2 * kHugePageBytes);
        EXPECT_TRUE(known_to_the_driver({before.data(), kHugePageBytes}));
    }
    EXPECT_EQ(tier->usage().staging_bytes, 0U);
}

TEST_F(PinnedStagingTest, AGpuSaysWhereItIs) {
    EXPECT_EQ(context_->pci_address().value(), "0000:01:00.0");
    gpu_->plant_fault("cuDeviceGetPCIBusId", 1, CUDA_ERROR_UNKNOWN);
    EXPECT_EQ(context_->pci_address().error().code(), Errc::io);
}

}  // namespace
}  // namespace frostline
