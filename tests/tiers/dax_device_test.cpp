// Proves which devices the pmem tier accepts, what it says about the others, and that a device is
// never created, resized or removed. Without hardware: sysfs and the kind of the file are shown by
// the table of calls. tests/vm does it with a real device.
#include "tests/tiers/fake_dax_device.h"
#include "tests/tiers/process_state.h"
#include "tiers/pmem_file.h"
#include "tiers/pmem_tier.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace frostline {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class DaxDeviceTest : public testing::Test {
   protected:
    Result<PmemFile> open(std::uint64_t size_bytes = 0) const {
        return PmemFile::open({device_.path(), size_bytes, &device_.calls()});
    }
    void expect_refused(const Result<PmemFile>& file, Errc code, const std::string& words) const {
        ASSERT_FALSE(file.has_value());
        const std::string message = file.error().message();
        EXPECT_EQ(file.error().code(), code) << message;
        EXPECT_NE(message.find(words), std::string::npos) << message;
        EXPECT_EQ(message.find('\n'), std::string::npos) << message;
        EXPECT_EQ(folder_.entries(), 1U) << "the device was removed";
        EXPECT_EQ(open_descriptors(), descriptors_);
        EXPECT_EQ(mappings_of(device_.path()), 0U);
    }

    ScratchFolder folder_;
    FakeDaxDevice device_{folder_.file("dax3.0"), 6 * kMiB};
    std::size_t descriptors_ = open_descriptors();
};

TEST_F(DaxDeviceTest, TheWholeDeviceIsMappedAndStays) {
    {
        auto file = open();
        ASSERT_TRUE(file.has_value()) << file.error().message();
        EXPECT_EQ(file->medium(), PmemMedium::devdax);
        EXPECT_TRUE(file->is_pmem());
        EXPECT_TRUE(file->needs_scrubbing());
        EXPECT_EQ(file->size_bytes(), 6 * kMiB);
        file->remove_if_created();
    }
    EXPECT_EQ(folder_.entries(), 1U);
    EXPECT_EQ(std::filesystem::file_size(device_.path()), 6 * kMiB);
    EXPECT_EQ(open_descriptors(), descriptors_);
}

TEST_F(DaxDeviceTest, ATierSaysHowItIsReached) {
    const auto tier =
        PmemTier::create({.path = device_.path(), .size_bytes = 0, .calls = &device_.calls()});
    ASSERT_TRUE(tier.has_value()) << tier.error().message();
    EXPECT_EQ((*tier)->info().access, "devdax, non-temporal copies");
    EXPECT_EQ((*tier)->info().fallback, "");
    EXPECT_EQ((*tier)->info().label, Label::real);
    EXPECT_EQ((*tier)->info().capacity_bytes, 6 * kMiB);
}

TEST_F(DaxDeviceTest, AKernelThatSaysTheAlignmentOfTheRegionWillDo) {
    device_.says_nothing_of("align");
    expect_refused(open(), Errc::invalid_argument, "DAX device");
    device_.says("device/align", "2097152\n");
    EXPECT_TRUE(open().has_value());
}

TEST_F(DaxDeviceTest, MoreThanTheDeviceHasIsRefused) {
    expect_refused(open(6 * kMiB + 1), Errc::invalid_argument, "too small");
    EXPECT_TRUE(open(6 * kMiB).has_value());
    // What is behind the last whole alignment cannot be mapped.
    device_.says("size", std::to_string(6 * kMiB - 1) + "\n");
    expect_refused(open(4 * kMiB + 1), Errc::invalid_argument, "4194304 bytes");
}

TEST_F(DaxDeviceTest, ADeviceThatOthersMayUseIsRefused) {
    for (const mode_t mode : {0640U, 0660U, 0604U, 0602U, 0666U}) {
        ASSERT_EQ(::chmod(device_.path().c_str(), mode), 0);
        expect_refused(open(), Errc::permission, "chmod 600");
    }
}

TEST_F(DaxDeviceTest, ADeviceOfSomebodyElseIsRefused) {
    device_.belongs_to_another_user();
    expect_refused(open(), Errc::permission, "another user");
}

TEST_F(DaxDeviceTest, ADeviceInUseIsBusy) {
    const auto first = open();
    ASSERT_TRUE(first.has_value());
    const auto second = open();
    ASSERT_FALSE(second.has_value());
    EXPECT_EQ(second.error().code(), Errc::busy);
}

TEST_F(DaxDeviceTest, ALinkToADeviceIsRefused) {
    const ScratchFolder elsewhere;
    const std::string link = elsewhere.file("link");
    ASSERT_EQ(::symlink(device_.path().c_str(), link.c_str()), 0);
    const auto file = PmemFile::open({link, 0, &device_.calls()});
    expect_refused(file, Errc::permission, "it is a link");
}

TEST_F(DaxDeviceTest, OtherDevicesAreRefused) {
    // This one is there everywhere and does no harm.
    const auto null = PmemFile::open({"/dev/null", 0});
    expect_refused(null, Errc::invalid_argument, "'/dev/null': not a regular file");
    for (const char* file : {"size", "align"}) {
        device_.says_nothing_of(file);
        expect_refused(open(), Errc::invalid_argument, "not a regular file or a DAX device");
        device_.says(file, std::to_string(2 * kMiB) + "\n");
    }
    EXPECT_TRUE(open().has_value());
}

TEST_F(DaxDeviceTest, ADeviceThatIsNotThereIsNotMadeAFile) {
    for (const std::string path : {"/dev/dax9999.9", "/dev/./dax9999.9"}) {
        const auto file = PmemFile::open({path, kMiB});
        expect_refused(file, Errc::not_found, path);
        EXPECT_NE(::access(path.c_str(), F_OK), 0);
    }
}

TEST_F(DaxDeviceTest, NonsenseInSysfsIsAnError) {
    for (const char* text :
         {"", "\n", "many\n", "-2097152\n", "6291456", "99999999999999999999\n", "2097151\n"}) {
        device_.says("size", text);
        expect_refused(open(), Errc::io, "/sys/dev/char/252:3");
    }
    device_.says("size", "6291456\n");
    for (const char* text : {"0\n", "3\n", "1024\n", "8388608\n"}) {
        device_.says("align", text);
        expect_refused(open(), Errc::io, "/sys/dev/char/252:3");
    }
}

TEST_F(DaxDeviceTest, SysfsThatCannotBeReadIsAnError) {
    SystemCalls calls = device_.calls();
    calls.pread = [](int, void*, size_t, off_t) {
        errno = EIO;
        return ssize_t{-1};
    };
    expect_refused(PmemFile::open({device_.path(), 0, &calls}), Errc::io, "/sys/dev/char/252:3");
}

}  // namespace
}  // namespace frostline
