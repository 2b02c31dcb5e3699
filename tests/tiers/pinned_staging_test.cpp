// Proves that staging is made when it is wanted, near the GPU, is counted until the driver has it
// back, and never reaches a forked child, whereas registered memory of the program's does.
#include "tiers/pinned_staging.h"
#include "tests/tiers/emulated_gpu.h"
#include "tests/tiers/faulty_system_calls.h"
#include "tests/tiers/tier_specimen.h"

#include <gtest/gtest.h>
#include <numaif.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>

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

Policy policy_when_made;
decltype(CudaFunctions::cuMemHostAlloc) original_alloc = nullptr;
CUresult alloc(void** memory, std::size_t size, unsigned flags) {
    policy_when_made = policy_now();
    return original_alloc(memory, size, flags);
}
CudaDriver watched(const CudaDriver& driver) {
    original_alloc = driver.cuMemHostAlloc;
    CudaDriver changed = driver;
    changed.cuMemHostAlloc = alloc;
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

class PinnedStagingTest : public testing::Test {
   protected:
    EmulatedGpu gpu_{"memory=64MiB"};
    CudaDriver driver_ = watched(gpu_->driver());
    std::shared_ptr<const CudaContext> context_ = *CudaContext::create(driver_, 0);
};

TEST_F(PinnedStagingTest, IsCountedUntilTheDriverHasItBack) {
    PinnedStaging staging(context_, kNoNode);
    EXPECT_EQ(staging.bytes(), 0U);
    const auto first = staging.take();
    const auto second = staging.take();
    ASSERT_TRUE(first && second);
    EXPECT_EQ(staging.bytes(), 2 * PinnedStaging::kBufferBytes);
    staging.give(*first);
    gpu_->plant_fault("cuMemFreeHost", 1, CUDA_ERROR_UNKNOWN);
    staging.give(*second);
    EXPECT_EQ(staging.bytes(), PinnedStaging::kBufferBytes) << "it is pinned still";
    staging.give(*second);
    gpu_->plant_fault("cuMemHostAlloc", 1, CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(staging.take().error().code(), Errc::no_space);
    EXPECT_EQ(staging.bytes(), 0U);
}

TEST_F(PinnedStagingTest, ComesFromTheNodeOfTheGpu) {
    const Policy before = policy_now();
    PinnedStaging staging(context_, 0);
    const auto buffer = staging.take();
    ASSERT_TRUE(buffer.has_value());
    NodeMask first_node{};
    first_node[0] = 1;
    EXPECT_EQ(policy_when_made, (Policy{MPOL_PREFERRED, first_node}));
    EXPECT_EQ(policy_now(), before) << "the thread's own policy is back";
    staging.give(*buffer);
}

TEST_F(PinnedStagingTest, DoesWithoutWhatTheKernelRefuses) {
    for (const Call call : {Call::get_mempolicy, Call::set_mempolicy, Call::madvise}) {
        const FaultInjection fault({.call = call, .error = EPERM});
        PinnedStaging staging(context_, 0, faulty_system_calls());
        const auto buffer = staging.take();
        ASSERT_TRUE(buffer.has_value()) << name(call);
        EXPECT_EQ(fault.injected(), 1U);
        staging.give(*buffer);
    }
}

TEST_F(PinnedStagingTest, AForkedChildDoesNotHaveIt) {
    PinnedStaging staging(context_, kNoNode);
    const auto buffer = staging.take();
    ASSERT_TRUE(buffer.has_value());
    const auto mapped = [&] {
        return ::msync(buffer->data(), buffer->size(), MS_ASYNC) == 0 ? 1 : errno == ENOMEM ? 2 : 3;
    };
    EXPECT_EQ(mapped(), 1);
    EXPECT_EQ(in_child(mapped), 2);
    staging.give(*buffer);
}

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
        ASSERT_TRUE(queue->staging(3).has_value());
        ASSERT_TRUE(queue->staging(3).has_value());
        EXPECT_EQ(tier->usage().staging_bytes, PinnedStaging::kBufferBytes);
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
