// Proves that nobody waits for the driver but who needs the memory: while handles are made, mapped
// and given access, other threads go on; and that a refusal leaves all as it was.
#include "migration/policies/lru_policy.h"
#include "migration/migration_engine.h"
#include "tests/tiers/emulated_gpu.h"
#include "tests/tiers/tier_specimen.h"
#include "tiers/device_tier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace frostline {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// Called before each of the driver's functions that put memory behind addresses; what it returns,
// if that is no success, the function returns.
std::function<CUresult(std::string_view function)> before;
CudaFunctions original;

CUresult make(CUmemGenericAllocationHandle* handle, std::size_t size,
              const CUmemAllocationProp* properties, unsigned long long flags) {
    if (const CUresult refused = before("cuMemCreate"); refused != CUDA_SUCCESS) return refused;
    return original.cuMemCreate(handle, size, properties, flags);
}
CUresult map(CUdeviceptr address, std::size_t size, std::size_t offset,
             CUmemGenericAllocationHandle handle, unsigned long long flags) {
    if (const CUresult refused = before("cuMemMap"); refused != CUDA_SUCCESS) return refused;
    return original.cuMemMap(address, size, offset, handle, flags);
}
CUresult set_access(CUdeviceptr address, std::size_t size, const CUmemAccessDesc* access,
                    std::size_t count) {
    if (const CUresult refused = before("cuMemSetAccess"); refused != CUDA_SUCCESS) return refused;
    return original.cuMemSetAccess(address, size, access, count);
}
CUresult nothing(std::string_view /*function*/) {
    return CUDA_SUCCESS;
}

CudaDriver watched(const CudaDriver& driver) {
    original = driver;
    CudaDriver changed = driver;
    changed.cuMemCreate = make;
    changed.cuMemMap = map;
    changed.cuMemSetAccess = set_access;
    return changed;
}

class EngineDeviceTest : public testing::Test {
   protected:
    EngineDeviceTest() {
        before = nothing;
        auto context = *CudaContext::create(driver_, 0);
        device_ = *DeviceTier::create({.context = context, .capacity_bytes = 32 * kMiB});
        dram_ = *DramTier::create({.id = TierId{1}, .capacity_bytes = 128 * kMiB});
        order_ = {device_.get(), dram_.get()};
        copies_ = *CopyEngine::create({});
        engine_.emplace(MigrationEngine::Options{.tiers = order_,
                                                 .copies = copies_.get(),
                                                 .policy = &policy_,
                                                 .verify = true,
                                                 .now_ns = [this] { return ++clock_ns_; }});
    }
    ~EngineDeviceTest() override {
        engine_.reset();
        before = nothing;
    }

    // Whether another thread gets an answer from the engine now.
    CUresult expect_free_engine() {
        ++looks_;
        const std::lock_guard lock(mutex_);
        auto answer = std::async(std::launch::async, [this] { return engine_->pins(); });
        EXPECT_EQ(answer.wait_for(std::chrono::seconds(10)), std::future_status::ready)
            << "the engine's lock is held while the driver works";
        answers_.push_back(std::move(answer));
        return CUDA_SUCCESS;
    }
    TensorId stored(std::uint64_t size_bytes, std::byte value) {
        const auto id = engine_->put(Bytes(size_bytes, value));
        if (!id) ADD_FAILURE() << id.error().message();
        return id ? *id : TensorId{};
    }
    bool holds(TensorId id, std::uint64_t size_bytes, std::byte value) {
        Bytes out(size_bytes);
        const auto done = engine_->read(id, out);
        if (!done) ADD_FAILURE() << done.error().message();
        return out == Bytes(size_bytes, value);
    }

    EmulatedGpu gpu_{"memory=64MiB"};
    CudaDriver driver_ = watched(gpu_->driver());
    std::unique_ptr<DeviceTier> device_;
    std::unique_ptr<DramTier> dram_;
    std::array<Tier*, 2> order_{};
    LruPolicy policy_;
    std::atomic<std::uint64_t> clock_ns_{0};
    std::unique_ptr<CopyEngine> copies_;
    std::optional<MigrationEngine> engine_;
    std::atomic<int> looks_{0};
    std::mutex mutex_;  // guards the answers
    std::vector<std::future<std::size_t>> answers_;
};

TEST_F(EngineDeviceTest, OthersGoOnWhileMemoryIsMadeForANewTensor) {
    before = [this](std::string_view) { return expect_free_engine(); };
    const auto made = engine_->allocate(8 * kMiB);
    ASSERT_TRUE(made.has_value()) << made.error().message();
    EXPECT_GE(looks_, 3);
    engine_->unpin(made->pinned);
    looks_ = 0;
    (void)stored(4 * kMiB, std::byte{1});
    EXPECT_GE(looks_, 3);
}

TEST_F(EngineDeviceTest, OthersGoOnWhileMemoryIsMadeForATensorThatComesBack) {
    const TensorId first = stored(20 * kMiB, std::byte{1});
    (void)stored(20 * kMiB, std::byte{2});  // sends the first one down
    before = [this](std::string_view) { return expect_free_engine(); };
    const auto pinned = engine_->pin(first, Access::read);
    ASSERT_TRUE(pinned.has_value()) << pinned.error().message();
    EXPECT_GE(looks_, 2) << "handles that are kept are mapped at least";
    engine_->unpin(*pinned);
    EXPECT_TRUE(holds(first, 20 * kMiB, std::byte{1}));
}

TEST_F(EngineDeviceTest, ARefusalOnTheWayBackLeavesTheTensorWhereItIs) {
    const TensorId first = stored(20 * kMiB, std::byte{1});
    const TensorId second = stored(20 * kMiB, std::byte{2});
    ASSERT_TRUE(engine_->drop(second).has_value());
    for (const std::string_view refused : {"cuMemMap", "cuMemSetAccess"}) {
        before = [refused](std::string_view function) {
            return function == refused ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
        };
        const auto pinned = engine_->pin(first, Access::read);
        ASSERT_FALSE(pinned.has_value()) << refused;
        EXPECT_EQ(pinned.error().code(), Errc::no_space);
        EXPECT_THAT(pinned.error().message(), testing::HasSubstr(std::string(refused)));
        EXPECT_EQ(device_->usage().used_bytes, 0U) << "the room was not given back";
        EXPECT_TRUE(holds(first, 20 * kMiB, std::byte{1}));
    }
    before = nothing;
    const auto pinned = engine_->pin(first, Access::read);
    ASSERT_TRUE(pinned.has_value()) << pinned.error().message();
    engine_->unpin(*pinned);
}

TEST_F(EngineDeviceTest, ARefusedNewTensorLeavesNothingBehind) {
    gpu_->plant_fault("cuMemCreate", 1, CUDA_ERROR_UNKNOWN);
    EXPECT_EQ(engine_->allocate(8 * kMiB).error().code(), Errc::io);
    EXPECT_EQ(device_->usage().used_bytes, 0U);
    const auto made = engine_->allocate(8 * kMiB);
    ASSERT_TRUE(made.has_value()) << made.error().message();
    engine_->unpin(made->pinned);
}

}  // namespace
}  // namespace frostline
