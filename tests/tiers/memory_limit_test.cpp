// Proves that the lowest limit of a process's control group and those above it is found, for both
// versions, in and out of containers, and that what makes no sense limits nothing.
#include "tiers/memory_limit.h"
#include "tests/tiers/scratch_folder.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

namespace frostline {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class MemoryLimit : public testing::Test {
   protected:
    void write(const std::string& file, const std::string& text) const {
        const std::filesystem::path path = root() + file;
        std::filesystem::create_directories(path.parent_path());
        std::ofstream(path) << text;
    }
    void limit(const std::string& group, std::uint64_t mib) const {
        write("/sys/fs/cgroup" + group, std::to_string(mib * kMiB) + "\n");
    }
    std::string root() const { return folder_.path(); }
    std::uint64_t mib() const { return memory_limit_bytes(root()) / kMiB; }

    const std::string second_ =
        "29 22 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
    const std::string first_ =
        "33 25 0:29 ROOT /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        "34 25 0:30 ROOT /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";

   private:
    ScratchFolder folder_;
};

TEST_F(MemoryLimit, WithoutControlGroupsItIsTheMachinesMemory) {
    const std::uint64_t machine = memory_limit_bytes(root());
    EXPECT_GT(machine, 16 * kMiB);
    EXPECT_LE(memory_limit_bytes(), machine);
    write("/proc/self/cgroup", "nonsense\n0:\n:::\n0::/lost\n");
    write("/proc/self/mountinfo", "\n1 2\n" + second_);
    EXPECT_EQ(memory_limit_bytes(root()), machine) << "there are no such files";
    write("/sys/fs/cgroup/lost/memory.max", "max\n");
    EXPECT_EQ(memory_limit_bytes(root()), machine);
    write("/sys/fs/cgroup/lost/memory.max", "9223372036854771712\n");
    EXPECT_EQ(memory_limit_bytes(root()), machine) << "more than there is";
}

TEST_F(MemoryLimit, OfAGroupAndAllAboveItTheLowestCounts) {
    write("/proc/self/cgroup", "0::/user.slice/job.scope/worker\n");
    write("/proc/self/mountinfo", second_);
    write("/sys/fs/cgroup/user.slice/memory.max", "max\n");
    limit("/user.slice/job.scope/memory.max", 9);
    limit("/user.slice/job.scope/worker/memory.max", 12);
    limit("/user.slice/other/memory.max", 1);
    EXPECT_EQ(mib(), 9U);
    limit("/user.slice/job.scope/worker/memory.max", 7);
    EXPECT_EQ(mib(), 7U);
    limit("/user.slice/memory.max", 5);
    EXPECT_EQ(mib(), 5U);
}

TEST_F(MemoryLimit, TheFirstVersionHasAHierarchyOfItsOwn) {
    std::string mounts = first_;
    for (std::size_t at = 0; (at = mounts.find("ROOT")) != std::string::npos;) {
        mounts.replace(at, 4, "/");
    }
    write("/proc/self/cgroup", "9:cpu:/a\n4:hugetlb,memory:/a/b\n0::/\n");
    write("/proc/self/mountinfo", mounts);
    limit("/memory/a/memory.limit_in_bytes", 11);
    limit("/memory/a/b/memory.limit_in_bytes", 13);
    limit("/cpu/a/memory.limit_in_bytes", 1);
    EXPECT_EQ(mib(), 11U);
}

TEST_F(MemoryLimit, InAContainerTheGroupsPathIsThatOfTheHost) {
    std::string mounts = first_;
    for (std::size_t at = 0; (at = mounts.find("ROOT")) != std::string::npos;) {
        mounts.replace(at, 4, "/docker/4711");
    }
    write("/proc/self/mountinfo", mounts);
    limit("/memory/memory.limit_in_bytes", 30);
    limit("/memory/inner/memory.limit_in_bytes", 20);
    for (const auto& [group, expected] : {std::pair<const char*, std::uint64_t>{"/docker/4711", 30},
                                          {"/docker/4711/inner", 20},
                                          {"/docker/47110", 30},
                                          {"/elsewhere", 30},
                                          {"/../4712", 30}}) {
        write("/proc/self/cgroup", std::string("4:memory:") + group + "\n");
        EXPECT_EQ(mib(), expected) << group;
    }
}

}  // namespace
}  // namespace frostline
