// A folder of a test's own, removed with everything in it when the test ends.
#pragma once

#include <gtest/gtest.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <string>

namespace frostline {

class ScratchFolder {
   public:
    enum class On : std::uint8_t { disk, memory, dax };

    /// On a file system in memory, if there is one, syncing costs nothing. FROSTLINE_TEST_PMEM says
    /// where a DAX file system is.
    explicit ScratchFolder(On where = On::disk) {
        std::string pattern = parent_on(where) / "frostline-test-XXXXXX";
        if (::mkdtemp(pattern.data()) == nullptr) {
            ADD_FAILURE() << "no scratch folder can be made as " << pattern;
        }
        path_ = pattern;
    }
    ScratchFolder(const ScratchFolder&) = delete;
    ScratchFolder& operator=(const ScratchFolder&) = delete;
    ~ScratchFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }

    const std::string& path() const { return path_; }
    std::string file(const std::string& name) const { return path_ + "/" + name; }
    /// Whether it lies in memory after all, as /tmp does on many machines.
    bool in_memory() const {
        struct statfs system = {};
        EXPECT_EQ(::statfs(path_.c_str(), &system), 0);
        return system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC;
    }
    std::size_t entries() const {
        const std::filesystem::directory_iterator all(path_);
        return static_cast<std::size_t>(std::distance(begin(all), end(all)));
    }

   private:
    static std::filesystem::path parent_on(On where) {
        const char* const dax = std::getenv("FROSTLINE_TEST_PMEM");
        if (where == On::dax && dax != nullptr) return dax;
        const char* const memory = "/dev/shm";
        if (where == On::memory && ::access(memory, W_OK) == 0) return memory;
        return std::filesystem::temp_directory_path();
    }

    std::string path_;
};

}  // namespace frostline
