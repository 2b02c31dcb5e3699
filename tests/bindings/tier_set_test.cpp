// Proves that a manager builds the tiers that its options name: memory bound to nodes, memory of
// another node as a tier of its own, several swap folders, and pinned memory where a GPU is.
#include "bindings/manager.h"
#include "tests/bindings/environment.h"
#include "tests/tiers/emulated_gpu.h"
#include "tests/tiers/scratch_folder.h"
#include "tests/tiers/seed.h"
#include "tests/tiers/tier_specimen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace frostline {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kMi = std::uint64_t{1} << 20;

class TierSetTest : public testing::Test {
   protected:
    static ManagerOptions options() {
        ManagerOptions options;
        options.dram_bytes = kMi;
        options.verify = true;
        return options;
    }
    /// Stores four times what DRAM holds, and wants all of it back.
    void expect_keeps_everything(Manager& manager) {
        std::vector<std::pair<TensorId, Bytes>> stored;
        for (int i = 0; i < 16; ++i) {
            const Bytes bytes = random_bytes(random_, kMi / 4);
            const auto id = manager.put(bytes);
            ASSERT_TRUE(id.has_value()) << id.error().message();
            stored.emplace_back(*id, bytes);
        }
        for (const auto& [id, bytes] : stored) {
            Bytes back(bytes.size());
            const auto got = manager.get(id, back);
            ASSERT_TRUE(got.has_value()) << got.error().message();
            EXPECT_TRUE(back == bytes);
            const auto pinned = manager.pin(id, Access::read);
            ASSERT_TRUE(pinned.has_value()) << pinned.error().message();
            EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), pinned->bytes().begin()));
        }
    }

    ScratchFolder folder_;
    std::mt19937_64 random_ = random_stream(40);
};

TEST_F(TierSetTest, memory_of_another_node_is_a_tier_below_dram) {
    // Node 0 is on every machine; that its memory is no further away changes nothing here.
    ManagerOptions far = options();
    far.far_node = 0;
    far.far_bytes = 8 * kMi;
    auto manager = Manager::open(far);
    ASSERT_TRUE(manager.has_value()) << manager.error().message();
    expect_keeps_everything(*manager);
    const ManagerStats stats = manager->stats();
    ASSERT_EQ(stats.tiers.size(), 2U);
    EXPECT_STREQ(stats.tiers[0].name, "dram");
    EXPECT_STREQ(stats.tiers[1].name, "far");
    EXPECT_GE(stats.tiers[1].moved_in_bytes, 3 * kMi);
    EXPECT_THAT(stats.tiers[1].access, HasSubstr("bound to NUMA nodes 0"));
}

TEST_F(TierSetTest, a_node_that_is_not_there_is_named) {
    ManagerOptions far = options();
    far.far_node = 977;
    far.far_bytes = kMi;
    const auto manager = Manager::open(far);
    ASSERT_FALSE(manager.has_value());
    EXPECT_EQ(manager.error().code(), Errc::invalid_argument);
    EXPECT_THAT(manager.error().message(), HasSubstr("977"));
    far.far_bytes.reset();
    EXPECT_EQ(Manager::open(far).error().code(), Errc::invalid_argument);
    ManagerOptions bound = options();
    bound.numa = {NumaPlacement::Mode::bind, {977}};
    EXPECT_THAT(Manager::open(bound).error().message(), HasSubstr("977"));
}

TEST_F(TierSetTest, swap_uses_all_its_places) {
    ManagerOptions striped = options();
    striped.swap_places = {folder_.path(), folder_.path()};
    striped.swap_bytes = 64 * kMi;
    auto manager = Manager::open(striped);
    ASSERT_TRUE(manager.has_value()) << manager.error().message();
    expect_keeps_everything(*manager);
    EXPECT_EQ(manager->stats().tiers[1].location, folder_.path() + ", " + folder_.path());
}

TEST_F(TierSetTest, dram_is_pinned_where_a_gpu_is_and_says_so_where_none_is) {
    ManagerOptions pinned = options();
    pinned.pin = true;
    pinned.swap_places = {folder_.path()};
    pinned.swap_bytes = 64 * kMi;
    {
        const EnvironmentVariable driver("FROSTLINE_CUDA_DRIVER", "/nowhere/libcuda.so.1");
        auto manager = Manager::open(pinned);
        ASSERT_TRUE(manager.has_value()) << manager.error().message();
        EXPECT_THAT(manager->stats().tiers[0].fallback, HasSubstr("not pinned"));
        expect_keeps_everything(*manager);
    }
    pinned.dram_bytes = 8 * kMi;
    const EmulatedGpu gpu;
    const EnvironmentVariable driver("FROSTLINE_CUDA_DRIVER", FROSTLINE_EMULATOR);
    auto manager = Manager::open(pinned);
    ASSERT_TRUE(manager.has_value()) << manager.error().message();
    EXPECT_THAT(manager->stats().tiers[0].access, HasSubstr("pinned"));
    EXPECT_EQ(manager->stats().tiers[0].fallback, "");
    expect_keeps_everything(*manager);
}

TEST_F(TierSetTest, a_gpu_with_nothing_to_do_is_refused) {
    ManagerOptions idle = options();
    for (const int gpu : {0, 1}) {
        idle.gpu = gpu;
        const auto manager = Manager::open(idle);
        ASSERT_FALSE(manager.has_value());
        EXPECT_EQ(manager.error().code(), Errc::invalid_argument);
        EXPECT_THAT(manager.error().message(), HasSubstr("set device"));
    }
}

TEST_F(TierSetTest, staging_of_a_gpu_is_counted_and_made_when_it_is_needed) {
    const EmulatedGpu gpu("memory=64MiB");
    const EnvironmentVariable driver("FROSTLINE_CUDA_DRIVER", FROSTLINE_EMULATOR);
    ManagerOptions with_device = options();
    with_device.device_bytes = 2 * kMi;
    with_device.dram_bytes = 0;  // so that all goes to a file, through staging
    with_device.swap_places = {folder_.path()};
    with_device.swap_bytes = 64 * kMi;
    with_device.calibrate = false;
    auto manager = Manager::open(with_device);
    ASSERT_TRUE(manager.has_value()) << manager.error().message();
    EXPECT_EQ(manager->stats().tiers[0].staging_bytes, 0U);
    const auto first = manager->put(Bytes(2 * kMi, std::byte{1}));
    const auto second = manager->put(Bytes(2 * kMi, std::byte{2}));
    ASSERT_TRUE(first && second) << "the first one leaves for the second";
    EXPECT_EQ(manager->stats().tiers[0].staging_bytes, 32 * kMi) << "one way is in use";
    Bytes back(2 * kMi);
    ASSERT_TRUE(manager->get(*first, back).has_value());
    EXPECT_EQ(back, Bytes(2 * kMi, std::byte{1}));
}

}  // namespace
}  // namespace frostline
