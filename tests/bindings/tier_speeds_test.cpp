// Proves that managers and `frostline info` know how fast their tiers are, measure at most once,
// and do without a cache where there can be none.
#include "bindings/machine_info.h"
#include "bindings/manager.h"
#include "tests/bindings/environment.h"
#include "tests/tiers/scratch_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace frostline {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr std::uint64_t kMi = std::uint64_t{1} << 20;

class TierSpeedsTest : public testing::Test {
   protected:
    ManagerOptions options(bool calibrate = true) const {
        return {.dram_bytes = 64 * kMi,
                .pmem_path = folder_.file("pmem"),
                .pmem_bytes = 64 * kMi,
                .swap_places = {folder_.path()},
                .swap_bytes = 64 * kMi,
                .calibrate = calibrate};
    }
    std::vector<TierStats> tiers_of(const ManagerOptions& options) const {
        const auto manager = Manager::open(options);
        EXPECT_TRUE(manager.has_value()) << manager.error().message();
        return manager ? manager->stats().tiers : std::vector<TierStats>{};
    }
    static MachineInfo info_of(const MachineQuery& query) {
        const auto info = machine_info(query);
        EXPECT_TRUE(info.has_value()) << info.error().message();
        return info ? *info : MachineInfo{};
    }
    static const MachineInfo::TierReport& tier(const MachineInfo& info, const std::string& name) {
        for (const auto& each : info.tiers) {
            if (each.name == name) return each;
        }
        ADD_FAILURE() << "there is no report of " << name;
        static const MachineInfo::TierReport none{};
        return none;
    }
    // Changes whenever the file is replaced.
    ino_t cache_inode() const {
        struct stat status = {};
        return ::stat(cache_file_.c_str(), &status) == 0 ? status.st_ino : 0;
    }

    ScratchFolder folder_;
    ScratchFolder cache_;
    std::string cache_file_ = cache_.file("frostline/calibration.json");
    EnvironmentVariable cache_home_{"XDG_CACHE_HOME", cache_.path()};
    EnvironmentVariable calibration_{"FROSTLINE_CALIBRATION", std::nullopt};
};

TEST_F(TierSpeedsTest, a_manager_measures_once_and_then_knows) {
    const auto start = std::chrono::steady_clock::now();
    const auto first = tiers_of(options());
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    std::printf("[ measured ] a manager of three tiers opened in %.2f s\n", took.count());
    EXPECT_LT(took.count(), 2.5) << "measuring takes less than 2 s, and opening the rest";
    const ino_t file = cache_inode();
    EXPECT_NE(file, 0U);
    const auto second = tiers_of(options());
    ASSERT_EQ(first.size(), 3U);
    ASSERT_EQ(second.size(), 3U);
    for (std::size_t i = 0; i < first.size(); ++i) {
        EXPECT_GT(first[i].speed.read_bytes_per_s, 0U) << first[i].name;
        EXPECT_GT(first[i].speed.write_bytes_per_s, 0U) << first[i].name;
        EXPECT_EQ(first[i].speed, second[i].speed) << first[i].name;
        EXPECT_EQ(first[i].used_bytes, 0U) << first[i].name;
        EXPECT_EQ(first[i].peak_bytes, 0U) << first[i].name << ": measuring is no use of it";
    }
    EXPECT_EQ(cache_inode(), file) << "it was measured again";
}

TEST_F(TierSpeedsTest, a_manager_that_is_told_not_to_measures_nothing) {
    const auto expect_unknown = [&](const std::vector<TierStats>& tiers) {
        for (const TierStats& each : tiers) EXPECT_EQ(each.speed, TierSpeed{}) << each.name;
        EXPECT_EQ(cache_.entries(), 0U);
    };
    expect_unknown(tiers_of(options(false)));
    const EnvironmentVariable off("FROSTLINE_CALIBRATION", "off");
    expect_unknown(tiers_of(options()));
}

TEST_F(TierSpeedsTest, the_environment_can_ask_for_new_figures) {
    (void)tiers_of(options());
    const ino_t file = cache_inode();
    const EnvironmentVariable now("FROSTLINE_CALIBRATION", "now");
    (void)tiers_of(options());
    EXPECT_NE(cache_inode(), file);
    const EnvironmentVariable wrong("FROSTLINE_CALIBRATION", "maybe");
    const auto refused = Manager::open(options());
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code(), Errc::invalid_argument);
    EXPECT_THAT(refused.error().message(), HasSubstr("maybe"));
    EXPECT_EQ(machine_info({}).error().code(), Errc::invalid_argument);
}

TEST_F(TierSpeedsTest, tiny_tiers_open_too) {
    ManagerOptions tiny = options();
    tiny.dram_bytes = 0;
    tiny.swap_bytes = 4096;
    const auto tiers = tiers_of(tiny);
    ASSERT_EQ(tiers.size(), 3U);
    EXPECT_EQ(tiers[0].speed, TierSpeed{}) << "there is no room to measure on";
    EXPECT_GT(tiers[2].speed.read_bytes_per_s, 0U);
}

TEST_F(TierSpeedsTest, without_a_place_for_a_cache_it_measures_and_says_so) {
    {
        const EnvironmentVariable relative("XDG_CACHE_HOME", "relative");
        const EnvironmentVariable no_home("HOME", std::nullopt);
        const MachineInfo info = info_of({.swap_directory = folder_.path()});
        EXPECT_THAT(info.cache_problem, HasSubstr("HOME"));
        EXPECT_EQ(info.cache_path, "");
        EXPECT_GT(tier(info, "swap").speed.read_bytes_per_s, 0U);
        EXPECT_FALSE(fs::exists("relative"));
    }
    const EnvironmentVariable unwritable("XDG_CACHE_HOME", "/proc");
    const MachineInfo info = info_of({.swap_directory = folder_.path()});
    EXPECT_THAT(info.cache_problem, HasSubstr("/proc/frostline"));
    EXPECT_GT(tier(info, "swap").speed.read_bytes_per_s, 0U);
}

TEST_F(TierSpeedsTest, the_home_folder_serves_where_there_is_no_other) {
    const EnvironmentVariable unset("XDG_CACHE_HOME", std::nullopt);
    const EnvironmentVariable home("HOME", folder_.path());
    const MachineInfo info = info_of({.swap_directory = folder_.path()});
    EXPECT_EQ(info.cache_path, folder_.file(".cache/frostline/calibration.json"));
    EXPECT_EQ(info.cache_problem, "");
    EXPECT_TRUE(fs::exists(info.cache_path));
}

TEST_F(TierSpeedsTest, info_reports_every_kind_of_tier) {
    const MachineQuery query{.pmem_path = folder_.file("pmem"), .swap_directory = folder_.path()};
    const MachineInfo info = info_of(query);
    ASSERT_EQ(info.tiers.size(), 4U);
    EXPECT_FALSE(info.nodes.empty()) << info.topology_unknown_because;
    EXPECT_FALSE(tier(info, "device").usable);
    EXPECT_NE(tier(info, "device").because, "");
    for (const char* const name : {"dram", "pmem", "swap"}) {
        const MachineInfo::TierReport& report = tier(info, name);
        EXPECT_TRUE(report.usable) << name << ": " << report.because;
        EXPECT_GT(report.measured_at_s, 0) << name << ": " << report.not_measured_because;
        EXPECT_FALSE(report.cached) << name;
        EXPECT_GT(report.speed.read_bytes_per_s, 0U) << name;
    }
    EXPECT_STREQ(tier(info, "pmem").label, "emulated");
    EXPECT_STREQ(tier(info, "swap").label, folder_.in_memory() ? "emulated" : "real");
    std::printf("[ measured ] three tiers in %.2f s\n",
                static_cast<double>(info.measuring_ns) / 1e9);
    EXPECT_LT(info.measuring_ns, 2'000'000'000U);
    EXPECT_EQ(folder_.entries(), 0U) << "something stayed behind";

    const MachineInfo again = info_of(query);
    const MachineInfo anew = info_of({query.pmem_path, query.swap_directory, true});
    for (const char* const name : {"dram", "pmem", "swap"}) {
        EXPECT_TRUE(tier(again, name).cached) << name;
        EXPECT_EQ(tier(again, name).speed, tier(info, name).speed) << name;
        EXPECT_FALSE(tier(anew, name).cached) << name;
    }
}

TEST_F(TierSpeedsTest, info_leaves_an_existing_pmem_file_as_it_is) {
    const std::string path = folder_.file("mine");
    const std::string content(64 * kMi, 'x');
    std::ofstream(path) << content;
    ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
    const MachineInfo info = info_of({.pmem_path = path, .swap_directory = folder_.path()});
    EXPECT_TRUE(tier(info, "pmem").usable) << tier(info, "pmem").because;
    EXPECT_EQ(tier(info, "pmem").measured_at_s, 0);
    EXPECT_NE(tier(info, "pmem").not_measured_because, "");
    std::stringstream now;
    now << std::ifstream(path).rdbuf();
    EXPECT_TRUE(now.str() == content) << "the file was written to";
    const MachineInfo anew = info_of({path, folder_.path(), true});
    EXPECT_GT(tier(anew, "pmem").speed.write_bytes_per_s, 0U);
    EXPECT_EQ(fs::file_size(path), content.size());
}

TEST_F(TierSpeedsTest, info_says_of_each_tier_why_it_cannot_be_used) {
    const std::string missing = folder_.file("missing");
    const MachineInfo info = info_of({.pmem_path = missing + "/pmem", .swap_directory = missing});
    for (const char* const name : {"pmem", "swap"}) {
        EXPECT_FALSE(tier(info, name).usable);
        EXPECT_TRUE(tier(info, name).asked_for);
        EXPECT_THAT(tier(info, name).because, HasSubstr(missing));
    }
    EXPECT_TRUE(tier(info, "dram").usable) << "the rest is reported all the same";
    const EnvironmentVariable temporary("TMPDIR", folder_.path());
    const MachineInfo unasked = info_of({});
    EXPECT_FALSE(tier(unasked, "pmem").asked_for);
    EXPECT_THAT(tier(unasked, "pmem").because, HasSubstr("--pmem"));
    EXPECT_EQ(tier(unasked, "swap").location, folder_.path());
    EXPECT_TRUE(tier(unasked, "swap").usable);
}

}  // namespace
}  // namespace frostline
