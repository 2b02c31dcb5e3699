// A DAX device where there is none: a table of calls that shows a regular file as a character
// device and a folder as the device's place in sysfs. One at a time.
#pragma once

#include "tests/tiers/scratch_folder.h"
#include "tiers/system_calls.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>

namespace frostline {

class FakeDaxDevice {
   public:
    static constexpr std::uint64_t kAlignment = std::uint64_t{2} << 20;

    FakeDaxDevice(std::string path, std::uint64_t size_bytes) : path_(std::move(path)) {
        sysfs = folder_.path();
        owner_shift = 0;
        std::ofstream(path_) << "";
        EXPECT_EQ(::truncate(path_.c_str(), static_cast<off_t>(size_bytes)), 0);
        EXPECT_EQ(::chmod(path_.c_str(), 0600), 0);
        says("size", std::to_string(size_bytes) + "\n");
        says("align", std::to_string(kAlignment) + "\n");
        calls_.open = [](const char* name, int flags, mode_t mode) {
            constexpr std::string_view kPlace = "/sys/dev/char/252:3/";
            std::string seen = name;
            if (seen.rfind(kPlace, 0) == 0) seen.replace(0, kPlace.size(), sysfs + "/");
            return ::open(seen.c_str(), flags, mode);
        };
        calls_.fstat = [](int fd, struct stat* out) {
            const int result = ::fstat(fd, out);
            if (S_ISREG(out->st_mode)) out->st_mode = S_IFCHR | (out->st_mode & 07777);
            out->st_rdev = makedev(252, 3);
            out->st_uid += owner_shift;
            return result;
        };
        calls_.posix_fallocate = [](int, off_t, off_t) {
            ADD_FAILURE() << "a device has no blocks to allocate";
            return ENODEV;
        };
        calls_.fallocate = [](int, int, off_t, off_t) {
            ADD_FAILURE() << "a device has no blocks to punch out";
            errno = ENODEV;
            return -1;
        };
    }

    const SystemCalls& calls() const { return calls_; }
    const std::string& path() const { return path_; }
    /// Sets what a file of its place in sysfs holds.
    void says(const std::string& file, const std::string& text) const {
        const std::filesystem::path place = folder_.file(file);
        std::filesystem::create_directories(place.parent_path());
        std::ofstream(place) << text;
    }
    void says_nothing_of(const std::string& file) const {
        std::filesystem::remove(folder_.file(file));
    }
    void belongs_to_another_user() { owner_shift = 1; }

   private:
    static inline std::string sysfs;
    static inline uid_t owner_shift = 0;
    ScratchFolder folder_;
    std::string path_;
    SystemCalls calls_ = SystemCalls::real();
};

}  // namespace frostline
