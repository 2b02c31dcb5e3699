// Runs the tests of pmem once more in a process in which libpmem takes a file for real persistent
// memory.
#include "tests/tiers/seed.h"

#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace frostline {
namespace {

// libpmem asks the environment once, when it is loaded: the paths of real persistent memory (its
// own copies, flushes and drains) need a process of their own.
TEST(PmemForced, ConformsWithThePathsOfRealPersistentMemory) {
    if (std::getenv("PMEM_IS_PMEM_FORCE") != nullptr) return;
    std::vector<std::string> settings;
    for (char** each = environ; *each != nullptr; ++each) {
        if (std::strncmp(*each, "GTEST_", 6) != 0) settings.emplace_back(*each);
    }
    settings.emplace_back("PMEM_IS_PMEM_FORCE=1");
    settings.emplace_back("FROSTLINE_SEED=" + std::to_string(test_seed()));
    std::vector<char*> environment;
    for (std::string& each : settings) environment.push_back(each.data());
    environment.push_back(nullptr);
    std::string program = "/proc/self/exe";
    std::string filter = "--gtest_filter=Tiers/*/pmem:PmemTier.*:PmemInPlace.*:Pmem/*:CopyPairs*";
    std::array<char*, 3> arguments{program.data(), filter.data(), nullptr};
    pid_t child = 0;
    ASSERT_EQ(::posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments.data(),
                            environment.data()),
              0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
}

}  // namespace
}  // namespace frostline
