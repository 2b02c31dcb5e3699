// Proves that stripes cover every byte exactly once, that a block device is taken only with leave
// and then shows nothing of what was on it, and that no link is followed.
#include "tiers/swap_files.h"
#include "tests/tiers/process_state.h"
#include "tests/tiers/tier_specimen.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

namespace frostline {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kStripe = SwapFiles::kStripeBytes;

SwapFiles open_in(const ScratchFolder& folder, std::size_t count) {
    auto files = SwapFiles::open({.places = std::vector(count, folder.path())});
    EXPECT_TRUE(files.has_value()) << files.error().message();
    return *std::move(files);
}

std::uint64_t blocks_of(int fd) {
    struct stat status = {};
    EXPECT_EQ(::fstat(fd, &status), 0);
    return static_cast<std::uint64_t>(status.st_blocks) * 512;
}

TEST(SwapFiles, StripesCoverEveryByteOnce) {
    const ScratchFolder folder;
    for (const std::size_t count : {1, 2, 3, 5}) {
        const SwapFiles files = open_in(folder, count);
        std::map<unsigned, std::uint64_t> next;  // in each file the bytes come in order
        for (std::uint64_t at = 0; at < 40 * kStripe;) {
            const SwapFiles::Place place = files.place(at);
            ASSERT_LT(place.file, count);
            ASSERT_EQ(place.offset, next[place.file]);
            const std::uint64_t size = std::min(place.contiguous_bytes, kStripe / 4);
            next[place.file] += size;
            at += size;
        }
        for (const auto& [file, end] : next) EXPECT_GE(end, 40 / count * kStripe);
    }
}

TEST(SwapFiles, AllocatesInEachFileJustItsPart) {
    const ScratchFolder folder;
    const SwapFiles files = open_in(folder, 3);
    // From within stripe 1 (file 1) to within stripe 4 (file 1 again).
    ASSERT_TRUE(files.allocate(kStripe + kMiB, 3 * kStripe).has_value());
    EXPECT_EQ(blocks_of(files.descriptor(0)), kStripe);
    EXPECT_EQ(blocks_of(files.descriptor(1)), kStripe);
    EXPECT_EQ(blocks_of(files.descriptor(2)), kStripe);
    ASSERT_TRUE(files.punch(2 * kStripe, kStripe).has_value());
    EXPECT_EQ(blocks_of(files.descriptor(0)), kStripe);
    EXPECT_EQ(blocks_of(files.descriptor(2)), 0U);
}

TEST(SwapFiles, ALinkToADirectoryMayLeadToIt) {
    const ScratchFolder folder;
    std::filesystem::create_directory(folder.file("real"));
    std::filesystem::create_directory_symlink(folder.file("real"), folder.file("link"));
    const auto files = SwapFiles::open({.places = {folder.file("link")}});
    // The file has no name there: a link to a directory leads nowhere that matters.
    EXPECT_TRUE(files.has_value());
    EXPECT_TRUE(std::filesystem::is_empty(folder.file("real")));
}

// A file that claims to be a block device, as a table of calls can make it.
class PretendedDevice : public testing::Test {
   protected:
    PretendedDevice() {
        calls_.fstat = [](int fd, struct stat* out) {
            const int result = SystemCalls::real().fstat(fd, out);
            if (S_ISREG(out->st_mode)) out->st_mode = S_IFBLK | 0600;
            return result;
        };
        calls_.block_device_size = [](int fd, std::uint64_t* size_bytes) {
            struct stat status = {};
            const int result = SystemCalls::real().fstat(fd, &status);
            *size_bytes = static_cast<std::uint64_t>(status.st_size);
            return result;
        };
        // What somebody else left on it.
        std::ofstream(path_) << std::string(4 * kMiB, 'x');
    }
    SwapTier::Options options() const {
        return {.places = {path_}, .growth_bytes = kMiB, .calls = &calls_, .block_devices = true};
    }

    ScratchFolder folder_;
    std::string path_ = folder_.file("device");
    SystemCalls calls_ = SystemCalls::real();
};

TEST_F(PretendedDevice, IsTakenOnlyWithLeave) {
    SwapTier::Options without = options();
    without.block_devices = false;
    const auto refused = SwapTier::create(without);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code(), Errc::invalid_argument);
    EXPECT_NE(std::strstr(refused.error().message(), path_.c_str()), nullptr);
    EXPECT_NE(std::strstr(refused.error().message(), "overwritten"), nullptr);
    EXPECT_EQ(std::filesystem::file_size(path_), 4 * kMiB);
    std::ifstream content(path_);
    EXPECT_EQ(content.get(), 'x') << "it was touched";
}

TEST_F(PretendedDevice, ShowsNothingOfWhatWasOnIt) {
    const auto tier = SwapTier::create(options());
    ASSERT_TRUE(tier.has_value()) << tier.error().message();
    EXPECT_EQ((*tier)->info().capacity_bytes, 4 * kMiB);
    while (const auto extent = (*tier)->reserve(kMiB / 2)) {
        EXPECT_EQ(read_all(**tier, *extent), Bytes(kMiB / 2)) << "a stranger's bytes";
    }
    EXPECT_EQ((*tier)->usage().used_bytes, 4 * kMiB);
}

TEST_F(PretendedDevice, HasNoMoreThanItHas) {
    SwapTier::Options more = options();
    more.size_bytes = 5 * kMiB;
    EXPECT_EQ(SwapTier::create(more).error().code(), Errc::invalid_argument);
}

TEST_F(PretendedDevice, ThatCannotBeClearedIsNotUsed) {
    calls_.fallocate = [](int, int, off_t, off_t) {
        errno = EOPNOTSUPP;
        return -1;
    };
    const auto tier = SwapTier::create(options());
    ASSERT_FALSE(tier.has_value());
    EXPECT_EQ(tier.error().native(), EOPNOTSUPP);
}

// A real one, where the machine lends one: it is overwritten.
TEST(SwapDevice, HoldsWhatIsWritten) {
    const char* const path = std::getenv("FROSTLINE_TEST_BLOCK_DEVICE");
    if (path == nullptr) return;  // only the virtual machine has one; see tests/vm
    auto random = random_stream(69);
    const auto tier = SwapTier::create({.places = {path}, .block_devices = true});
    ASSERT_TRUE(tier.has_value()) << tier.error().message();
    EXPECT_EQ((*tier)->info().fallback, "");
    const Extent extent = *(*tier)->reserve(8 * kMiB + 5);
    EXPECT_EQ(read_all(**tier, extent), Bytes(8 * kMiB + 5)) << "a stranger's bytes";
    const Bytes bytes = random_bytes(random, extent.length_bytes);
    ASSERT_TRUE((*tier)->write(extent, 0, bytes).has_value());
    EXPECT_TRUE(read_all(**tier, extent) == bytes);
}

}  // namespace
}  // namespace frostline
