// Proves that the cache of measurements answers for the same machine and medium only, believes no
// file that somebody else could have written, and survives damage and company.
#include "tiers/calibration_cache.h"

#include "tests/tiers/scratch_folder.h"
#include "tests/tiers/tier_specimen.h"
#include "tiers/calibration_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace frostline {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr std::uint64_t kMi = std::uint64_t{1} << 20;
constexpr std::int64_t kNow = 1'800'000'000;
constexpr std::int64_t kDay = 24 * 60 * 60;

CachedCalibration entry(const std::string& medium, std::uint64_t figure = 1,
                        std::int64_t measured_at_s = kNow) {
    return {{"a machine", medium},
            {{figure, figure + 1, figure + 2, figure + 3, 2}, 64 * kMi},
            measured_at_s};
}

class CalibrationCacheTest : public testing::Test {
   protected:
    void expect_known(const CachedCalibration& expected) const {
        const auto found = cache_.find(expected.key);
        ASSERT_TRUE(found.has_value()) << found.error().message();
        EXPECT_EQ(found->calibration.speed, expected.calibration.speed);
        EXPECT_EQ(found->calibration.sample_bytes, expected.calibration.sample_bytes);
        EXPECT_EQ(found->measured_at_s, expected.measured_at_s);
    }
    void expect_unknown(Errc code, const std::string& medium = "disk") const {
        const auto found = cache_.find(entry(medium).key);
        ASSERT_FALSE(found.has_value());
        EXPECT_EQ(found.error().code(), code) << found.error().message();
    }
    void store(const CachedCalibration& one) {
        const auto stored = cache_.store({&one, 1}, kNow);
        ASSERT_TRUE(stored.has_value()) << stored.error().message();
    }
    void put_file(const std::string& text, mode_t mode = 0600) {
        fs::create_directories(folder_);
        ASSERT_EQ(::chmod(folder_.c_str(), 0700), 0);
        std::ofstream(cache_.path()) << text;
        ASSERT_EQ(::chmod(cache_.path().c_str(), mode), 0);
    }
    mode_t mode_of(const std::string& path) const {
        struct stat status = {};
        EXPECT_EQ(::lstat(path.c_str(), &status), 0) << path;
        return status.st_mode & 07777;
    }

    ScratchFolder scratch_;
    std::string folder_ = scratch_.file("parent/frostline");
    CalibrationCache cache_{folder_, ::geteuid()};
};

TEST_F(CalibrationCacheTest, knows_what_was_stored_and_nothing_else) {
    expect_unknown(Errc::not_found);
    EXPECT_EQ(scratch_.entries(), 0U) << "asking creates nothing";
    const std::vector<CachedCalibration> both{entry("disk", 10), entry("pmem", 20)};
    ASSERT_TRUE(cache_.store(both, kNow).has_value());
    expect_known(both[0]);
    expect_known(both[1]);
    expect_unknown(Errc::not_found, "another disk");
    CalibrationKey elsewhere = both[0].key;
    elsewhere.machine = "another machine";
    EXPECT_EQ(cache_.find(elsewhere).error().code(), Errc::not_found);
    store(entry("disk", 30));
    expect_known(entry("disk", 30));
    expect_known(both[1]);
}

TEST_F(CalibrationCacheTest, is_private_and_leaves_nothing_beside_the_file) {
    store(entry("disk"));
    EXPECT_EQ(mode_of(cache_.path()), 0600U);
    EXPECT_EQ(mode_of(folder_), 0700U);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(CalibrationCacheTest, entries_expire) {
    const CachedCalibration now = entry("disk");
    EXPECT_TRUE(now.good_for(64 * kMi, kNow));
    EXPECT_TRUE(now.good_for(64 * kMi, kNow + CalibrationCache::kDaysUntilExpiry * kDay));
    EXPECT_FALSE(now.good_for(64 * kMi, kNow + CalibrationCache::kDaysUntilExpiry * kDay + 1));
    EXPECT_FALSE(now.good_for(64 * kMi, kNow - 1)) << "it comes from the future";
    store(entry("old", 1, kNow - 31 * kDay));
    store(entry("new", 2, kNow));
    expect_unknown(Errc::not_found, "old");
    expect_known(entry("new", 2));
}

TEST_F(CalibrationCacheTest, a_small_sample_does_not_stand_for_a_large_one) {
    CachedCalibration small = entry("disk");
    small.calibration.sample_bytes = 4 * kMi;
    EXPECT_TRUE(small.good_for(4096, kNow));
    EXPECT_TRUE(small.good_for(8 * kMi, kNow));
    EXPECT_FALSE(small.good_for(12 * kMi, kNow));
}

TEST_F(CalibrationCacheTest, ignores_and_replaces_what_is_damaged_or_newer) {
    store(entry("disk"));
    std::stringstream good;
    good << std::ifstream(cache_.path()).rdbuf();
    std::vector<std::string> bad{"",
                                 "{",
                                 "[]",
                                 "null",
                                 R"({"format": 1})",
                                 R"({"format": 2, "entries": []})",
                                 R"({"format": -1, "entries": []})",
                                 R"({"format": 1, "entries": {}})",
                                 R"({"format": 1, "entries": [7]})",
                                 R"({"format": 1, "entries": [{"machine": "a machine"}]})"};
    for (const char* const member : {"best_writers", "measured_at_s", "medium", "sample_bytes"}) {
        for (const char* const value : {"-1", "1.5", "null", "99999999999999999999"}) {
            std::string text = good.str();
            const std::size_t name = text.find(member);
            const std::size_t start = text.find(": ", name) + 2;
            text.replace(start, text.find_first_of(",\n", start) - start, value);
            bad.push_back(text);
        }
    }
    for (std::size_t cut = 1; cut + 2 < good.str().size(); cut += 7) {
        bad.push_back(good.str().substr(0, cut));
    }
    bad.push_back(std::string(2 << 20, ' ') + good.str());
    for (const std::string& text : bad) {
        put_file(text);
        expect_unknown(Errc::corrupt);
        store(entry("disk", 5));
        expect_known(entry("disk", 5));
    }
}

TEST_F(CalibrationCacheTest, ignores_what_others_may_have_written) {
    const std::string good = format_calibrations(std::vector{entry("disk")});
    for (const mode_t mode : {0620, 0602, 0666}) {
        put_file(good, mode);
        expect_unknown(Errc::permission);
    }
    store(entry("disk", 5));  // replaces it
    expect_known(entry("disk", 5));
    EXPECT_EQ(mode_of(cache_.path()), 0600U);
    const CalibrationCache others(folder_, ::geteuid() + 1);
    EXPECT_EQ(others.find(entry("disk").key).error().code(), Errc::permission);
    ASSERT_EQ(::chmod(folder_.c_str(), 0775), 0);
    expect_known(entry("disk", 5));
    ASSERT_EQ(::chmod(folder_.c_str(), 0777), 0);
    expect_unknown(Errc::permission);
    const CachedCalibration one = entry("disk");
    EXPECT_EQ(cache_.store({&one, 1}, kNow).error().code(), Errc::permission);
}

TEST_F(CalibrationCacheTest, follows_no_link_and_waits_for_no_pipe) {
    const std::string target = scratch_.file("target");
    std::ofstream(target) << format_calibrations(std::vector{entry("disk")});
    ASSERT_EQ(::chmod(target.c_str(), 0600), 0);
    put_file("");
    fs::remove(cache_.path());
    fs::create_symlink(target, cache_.path());
    EXPECT_FALSE(cache_.find(entry("disk").key).has_value());
    fs::remove(cache_.path());
    ASSERT_EQ(::mkfifo(cache_.path().c_str(), 0600), 0);
    expect_unknown(Errc::corrupt);
    // Nor through the name under which a new file is made.
    fs::create_symlink(target, cache_.path() + ".new");
    const auto size_before = fs::file_size(target);
    store(entry("disk", 5));
    expect_known(entry("disk", 5));
    EXPECT_EQ(fs::file_size(target), size_before);
    EXPECT_FALSE(fs::is_symlink(cache_.path()));
    // Nor a folder that is one.
    fs::rename(folder_, folder_ + "-moved");
    fs::create_symlink(folder_ + "-moved", folder_);
    EXPECT_FALSE(cache_.find(entry("disk", 5).key).has_value());
}

TEST_F(CalibrationCacheTest, says_what_keeps_it_from_storing) {
    const CachedCalibration one = entry("disk");
    std::ofstream(scratch_.file("parent")) << "a file, where the folder should go";
    const auto stored = cache_.store({&one, 1}, kNow);
    ASSERT_FALSE(stored.has_value());
    EXPECT_THAT(stored.error().message(), HasSubstr(scratch_.file("parent")));
    CalibrationCache nowhere("/proc/frostline", ::geteuid());
    EXPECT_FALSE(nowhere.store({&one, 1}, kNow).has_value());
    EXPECT_FALSE(nowhere.find(one.key).has_value());
}

TEST_F(CalibrationCacheTest, does_not_wait_long_for_its_lock) {
    store(entry("disk"));
    const int folder = ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ASSERT_GE(folder, 0);
    ASSERT_EQ(::flock(folder, LOCK_EX), 0);
    const CachedCalibration other = entry("pmem");
    EXPECT_EQ(cache_.store({&other, 1}, kNow).error().code(), Errc::busy);
    expect_known(entry("disk"));  // reading needs none
    ASSERT_EQ(::close(folder), 0);
    store(other);
}

TEST_F(CalibrationCacheTest, many_processes_lose_nothing_of_each_other) {
    constexpr int kProcesses = 8;
    constexpr int kRounds = 10;
    std::vector<pid_t> children;
    for (int process = 0; process < kProcesses; ++process) {
        const pid_t child = ::fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            bool good = true;
            for (int round = 0; round < kRounds; ++round) {
                const auto own = entry("medium " + std::to_string(process),
                                       static_cast<std::uint64_t>(round) + 1);
                // A full lock queue is an answer, too; the next attempt may have more luck.
                while (!cache_.store({&own, 1}, kNow)) {
                }
                const auto found = cache_.find(own.key);
                good = good && found && found->calibration.speed == own.calibration.speed;
            }
            ::_exit(good ? 0 : 1);
        }
        children.push_back(child);
    }
    for (const pid_t child : children) {
        int status = 0;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    }
    for (int process = 0; process < kProcesses; ++process) {
        expect_known(entry("medium " + std::to_string(process), kRounds));
    }
}

TEST_F(CalibrationCacheTest, keeps_the_newest_of_too_many) {
    std::vector<CachedCalibration> many;
    for (std::size_t i = 0; i < CalibrationCache::kMostEntries + 20; ++i) {
        many.push_back(
            entry("medium " + std::to_string(i), 1, kNow - 1000 + static_cast<std::int64_t>(i)));
    }
    ASSERT_TRUE(cache_.store(many, kNow).has_value());
    expect_unknown(Errc::not_found, "medium 19");
    expect_known(many[20]);
    expect_known(many.back());
}

TEST(CalibrationKeys, tell_media_apart_and_folders_of_one_disk_not) {
    const ScratchFolder first;
    const ScratchFolder second;
    TierInfo info{.kind = TierKind::swap, .location = first.path(), .access = "io_uring"};
    const std::string fingerprint = medium_fingerprint(info);
    const auto changed = [&](auto change) {
        TierInfo other = info;
        change(other);
        return medium_fingerprint(other) != fingerprint;
    };
    EXPECT_FALSE(changed([&](TierInfo& other) { other.location = second.path(); }));
    EXPECT_FALSE(changed([](TierInfo& other) { other.capacity_bytes = 77; }));
    EXPECT_TRUE(changed([](TierInfo& other) { other.location = "/proc"; }));
    EXPECT_TRUE(changed([](TierInfo& other) { other.location = "/not there"; }));
    EXPECT_TRUE(changed([](TierInfo& other) { other.location.clear(); }));
    EXPECT_TRUE(changed([](TierInfo& other) { other.access = "read and write"; }));
    EXPECT_TRUE(changed([](TierInfo& other) { other.kind = TierKind::pmem; }));
    EXPECT_TRUE(changed([](TierInfo& other) { other.label = Label::emulated; }));
    EXPECT_TRUE(changed([](TierInfo& other) { other.numa_node = 1; }));
    EXPECT_EQ(machine_fingerprint(), machine_fingerprint());
    EXPECT_THAT(machine_fingerprint(), HasSubstr("NUMA"));
}

}  // namespace
}  // namespace frostline
