// Proves what is particular to the swap tier: its files have no names, grow in steps, survive a
// full disk, and give blocks back that are needed no longer. Transfers that fail or fall short are
// in swap_transfer_test.cpp.
#include "tests/tiers/process_state.h"
#include "tests/tiers/tier_specimen.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace frostline {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class SwapTierTest : public testing::Test {
   protected:
    Result<std::unique_ptr<SwapTier>> create(std::uint64_t size_bytes,
                                             std::uint64_t growth_bytes = 16 * kPageBytes) {
        return create_in(folder_.path(), size_bytes, growth_bytes);
    }
    static Result<std::unique_ptr<SwapTier>> create_in(const std::string& directory,
                                                       std::uint64_t size_bytes,
                                                       std::uint64_t growth_bytes) {
        return SwapTier::create(
            {TierId{}, {directory}, size_bytes, growth_bytes, &faulty_system_calls()});
    }
    /// The descriptor of the unlinked swap file, found as another program would.
    int swap_file() const {
        for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
            std::error_code gone;
            const std::string target = std::filesystem::read_symlink(each.path(), gone);
            if (target.compare(0, folder_.path().size(), folder_.path()) == 0 &&
                target.find("(deleted)") != std::string::npos) {
                return std::stoi(each.path().filename());
            }
        }
        return -1;
    }
    struct stat swap_status() const {
        struct stat status = {};
        EXPECT_EQ(::fstat(swap_file(), &status), 0);
        return status;
    }
    Bytes fill(Tier& tier, const Extent& extent) {
        Bytes bytes = random_bytes(random_, extent.length_bytes);
        const auto written = tier.write(extent, 0, bytes);
        EXPECT_TRUE(written.has_value()) << written.error().message();
        return bytes;
    }

    ScratchFolder folder_;
    std::mt19937_64 random_ = random_stream(60);
};

TEST_F(SwapTierTest, ItsFileHasNoNameAtAnyTime) {
    FaultInjection calls(Fault{});
    calls.after_every_call([&](Call call) { EXPECT_EQ(folder_.entries(), 0U) << name(call); });
    const std::size_t descriptors = open_descriptors();
    {
        const mode_t mask = ::umask(0);
        const auto tier = create(kMiB);
        ::umask(mask);
        ASSERT_TRUE(tier.has_value()) << tier.error().message();
        EXPECT_EQ(swap_status().st_mode & 07777, 0600U);
        EXPECT_EQ(swap_status().st_nlink, 0U);
        EXPECT_NE(::fcntl(swap_file(), F_GETFD) & FD_CLOEXEC, 0) << "children would inherit it";
        EXPECT_EQ((*tier)->info().location, folder_.path());
    }
    EXPECT_EQ(open_descriptors(), descriptors);
}

TEST_F(SwapTierTest, WithoutUnnamedFilesTheNameIsGoneAtOnce) {
    for (const int error : {EOPNOTSUPP, EISDIR}) {
        FaultInjection calls({.call = Call::open, .nth = 2, .error = error});
        calls.after_every_call([&](Call call) {
            EXPECT_EQ(folder_.entries(), call == Call::mkostemp ? 1U : 0U) << name(call);
        });
        const mode_t mask = ::umask(0);
        const auto tier = create(kMiB);
        ::umask(mask);
        ASSERT_TRUE(tier.has_value()) << tier.error().message();
        EXPECT_EQ(calls.uses(Call::mkostemp), 1U);
        EXPECT_EQ(swap_status().st_mode & 07777, 0600U);
        EXPECT_EQ(swap_status().st_nlink, 0U);
        const auto extent = (*tier)->reserve(12345);
        const Bytes bytes = fill(**tier, *extent);
        EXPECT_TRUE(read_all(**tier, *extent) == bytes);
    }
}

TEST_F(SwapTierTest, ADirectoryThatCannotBeUsedIsNamed) {
    const auto missing = create_in(folder_.file("missing"), kMiB, kMiB);
    EXPECT_EQ(missing.error().code(), Errc::not_found);
    EXPECT_NE(std::strstr(missing.error().message(), folder_.path().c_str()), nullptr);
    EXPECT_NE(std::strstr(missing.error().message(), "No such file"), nullptr);
    std::ofstream(folder_.file("file")) << "x";
    const auto file = create_in(folder_.file("file"), kMiB, kMiB);
    ASSERT_FALSE(file.has_value());
    EXPECT_EQ(file.error().code(), Errc::not_found);
    EXPECT_NE(std::strstr(file.error().message(), "Not a directory"), nullptr);
    EXPECT_EQ(std::filesystem::file_size(folder_.file("file")), 1U);
    for (const int error : {EACCES, EROFS}) {
        const FaultInjection fault({.call = Call::open, .nth = 2, .error = error});
        EXPECT_EQ(create(kMiB).error().code(), Errc::permission);
    }
}

TEST_F(SwapTierTest, ItGrowsInStepsUpToItsCap) {
    FaultInjection calls(Fault{});
    const auto tier = *create(10 * kPageBytes, 4 * kPageBytes);
    EXPECT_EQ(swap_status().st_size, static_cast<off_t>(4 * kPageBytes));
    EXPECT_EQ(calls.uses(Call::posix_fallocate), 1U);
    for (std::uint64_t pages = 1; pages <= 10; ++pages) {
        ASSERT_TRUE(tier->reserve(kPageBytes).has_value());
        const std::uint64_t steps = (pages + 3) / 4;
        EXPECT_EQ(swap_status().st_size,
                  static_cast<off_t>(std::min<std::uint64_t>(4 * steps, 10) * kPageBytes));
        EXPECT_EQ(calls.uses(Call::posix_fallocate), steps);
    }
    const auto beyond = tier->reserve(1);
    EXPECT_EQ(beyond.error().code(), Errc::no_space);
    EXPECT_EQ(beyond.error().native(), 0)
        << "the budget is full, not the disk: " << beyond.error().message();
    EXPECT_EQ(calls.uses(Call::posix_fallocate), 3U) << "it grew beyond its cap";
    EXPECT_GE(swap_status().st_blocks * 512, static_cast<blkcnt_t>(10 * kPageBytes)) << "sparse";
}

TEST_F(SwapTierTest, RoomAtTheEndOfTheFileCountsTowardsWhatIsMissing) {
    const auto tier = *create(8 * kPageBytes, 2 * kPageBytes);
    const auto first = tier->reserve(kPageBytes);
    ASSERT_TRUE(first.has_value());
    const auto rest = tier->reserve(7 * kPageBytes);  // one page is there, six are to come
    ASSERT_TRUE(rest.has_value()) << rest.error().message();
    EXPECT_EQ(swap_status().st_size, static_cast<off_t>(8 * kPageBytes));
}

TEST_F(SwapTierTest, AFullDiskStopsItsGrowthAndWhatItHasIsUsedFurther) {
    FaultInjection fault(
        {.call = Call::posix_fallocate, .nth = 2, .error = ENOSPC, .from_then_on = true});
    const auto tier = *create(kMiB, 4 * kPageBytes);
    std::vector<Extent> pages;
    for (int i = 0; i < 4; ++i) pages.push_back(*tier->reserve(kPageBytes));
    const Bytes kept = fill(*tier, pages[0]);
    const auto refused = tier->reserve(kPageBytes);
    EXPECT_EQ(refused.error().code(), Errc::no_space);
    EXPECT_EQ(refused.error().native(), ENOSPC);
    EXPECT_NE(std::strstr(refused.error().message(), folder_.path().c_str()), nullptr);
    EXPECT_TRUE(tier->usage().open) << "room that comes back may be used";
    EXPECT_EQ(tier->usage().used_bytes, 4 * kPageBytes);
    tier->release(pages[3]);
    const auto again = tier->reserve(kPageBytes);
    ASSERT_TRUE(again.has_value());
    const Bytes fresh = fill(*tier, *again);
    EXPECT_TRUE(read_all(*tier, *again) == fresh);
    EXPECT_TRUE(read_all(*tier, pages[0]) == kept);
}

TEST_F(SwapTierTest, OfANearlyFullDiskItTakesJustWhatItNeeds) {
    FaultInjection fault({.call = Call::posix_fallocate, .nth = 2, .error = ENOSPC});
    const auto tier = *create(kMiB, 8 * kPageBytes);
    ASSERT_TRUE(tier->reserve(8 * kPageBytes).has_value());
    ASSERT_TRUE(tier->reserve(3 * kPageBytes).has_value());
    EXPECT_EQ(swap_status().st_size, static_cast<off_t>(11 * kPageBytes));
    EXPECT_EQ(fault.uses(Call::posix_fallocate), 3U);
}

TEST_F(SwapTierTest, WhatAFailedStepGotIsGivenBack) {
    SystemCalls calls = SystemCalls::real();
    // As a file system that runs full in the middle.
    calls.posix_fallocate = [](int fd, off_t offset, off_t length) {
        if (length <= static_cast<off_t>(4 * kPageBytes)) {
            return SystemCalls::real().posix_fallocate(fd, offset, length);
        }
        EXPECT_EQ(SystemCalls::real().posix_fallocate(fd, offset, length / 2), 0);
        return ENOSPC;
    };
    const auto tier = *SwapTier::create({.places = {folder_.path()},
                                         .size_bytes = kMiB,
                                         .growth_bytes = kMiB / 2,
                                         .calls = &calls});
    ASSERT_TRUE(tier->reserve(2 * kPageBytes).has_value());
    EXPECT_EQ(tier->allocated_bytes(), 2 * kPageBytes);
    EXPECT_EQ(swap_status().st_blocks * 512, static_cast<blkcnt_t>(2 * kPageBytes));
}

TEST_F(SwapTierTest, WithoutASizeItLeavesATenthOfTheDiskFree) {
    static const std::uint64_t disk_pages = 1000;
    SystemCalls calls = SystemCalls::real();
    calls.fstatvfs = [](int, struct statvfs* out) {
        *out = {};
        out->f_frsize = kPageBytes;
        out->f_bavail = disk_pages;
        return 0;
    };
    const auto tier = *SwapTier::create({TierId{}, {folder_.path()}, 0, 2 * kPageBytes, &calls});
    EXPECT_EQ(tier->info().capacity_bytes, disk_pages * kPageBytes / 10 * 9 / 4096 * 4096);
    calls.fstatvfs = [](int, struct statvfs* out) {
        *out = {};
        return 0;
    };
    EXPECT_EQ(SwapTier::create({TierId{}, {folder_.path()}, 0, kMiB, &calls}).error().code(),
              Errc::no_space);
}

TEST_F(SwapTierTest, ItSaysHowItsFilesAreReached) {
    const auto best = *create(kMiB);
    EXPECT_EQ(best->info().access, "io_uring, O_DIRECT");
    if (!folder_.in_memory()) {
        EXPECT_EQ(best->info().fallback, "");
    }
    {
        const FaultInjection fault({.call = Call::uring_init, .error = EPERM});
        const auto tier = *create(kMiB);
        EXPECT_EQ(tier->info().access, "pread and pwrite, O_DIRECT");
        EXPECT_NE(tier->info().fallback.find("io_uring is refused"), std::string::npos);
        EXPECT_NE(tier->info().fallback.find("Operation not permitted"), std::string::npos);
    }
    // Refused when the file is opened (its second call, after the look at what it is), or written.
    for (const Fault& each : {Fault{.call = Call::open, .nth = 2, .error = EINVAL},
                              Fault{.call = Call::pwrite, .error = EINVAL}}) {
        const FaultInjection fault(each);
        const auto tier = *create(kMiB);
        EXPECT_EQ(tier->info().access, "io_uring, page cache");
        EXPECT_NE(tier->info().fallback.find("refuses O_DIRECT"), std::string::npos);
        EXPECT_NE(tier->info().fallback.find(folder_.path()), std::string::npos);
    }
}

TEST_F(SwapTierTest, AnOldKernelGivesAPlainRing) {
    const FaultInjection fault({.call = Call::uring_init, .error = EINVAL});
    const auto tier = *create(kMiB);
    EXPECT_EQ(fault.uses(Call::uring_init), 2U);
    EXPECT_EQ(tier->info().access, "io_uring, O_DIRECT");
}

TEST_F(SwapTierTest, ItsOptionsMustMakeSense) {
    SwapTier::Options options{.places = {folder_.path()}, .size_bytes = kMiB};
    const auto refused = [](const SwapTier::Options& wrong) {
        return SwapTier::create(wrong).error().code();
    };
    SwapTier::Options wrong = options;
    wrong.queue_depth = 0;
    EXPECT_EQ(refused(wrong), Errc::invalid_argument);
    wrong = options;
    wrong.block_bytes = kPageBytes + 1;
    EXPECT_EQ(refused(wrong), Errc::invalid_argument);
    wrong = options;
    wrong.places.clear();
    EXPECT_EQ(refused(wrong), Errc::invalid_argument);
}

TEST_F(SwapTierTest, BlocksThatAreNeededNoLongerAreGivenBack) {
    static std::uint64_t now_ns = 0;
    const auto clock = []() noexcept { return now_ns; };
    const auto tier = *SwapTier::create({.places = {folder_.path()},
                                         .size_bytes = 16 * kMiB,
                                         .growth_bytes = kMiB,
                                         .keep_ns = 1000,
                                         .now_ns = clock});
    std::vector<Extent> held;
    for (int i = 0; i < 12; ++i) held.push_back(*tier->reserve(kMiB));
    const Bytes kept = fill(*tier, held[0]);
    const auto on_disk = [&] { return static_cast<std::uint64_t>(swap_status().st_blocks) * 512; };
    for (int i = 11; i >= 2; --i) tier->release(held[static_cast<std::size_t>(i)]);
    EXPECT_EQ(tier->allocated_bytes(), 12 * kMiB) << "the peak of a moment ago may come again";
    for (int span = 0; span < 2; ++span) {
        now_ns += 1000;
        tier->release(*tier->reserve(kMiB));
    }
    EXPECT_LE(tier->allocated_bytes(), 4 * kMiB);
    EXPECT_GE(tier->allocated_bytes(), 2 * kMiB);
    EXPECT_LE(on_disk(), 5 * kMiB) << "the file system has them still";
    EXPECT_TRUE(read_all(*tier, held[0]) == kept);
    for (int i = 2; i < 12; ++i) {
        held[static_cast<std::size_t>(i)] = *tier->reserve(kMiB);
        const Bytes bytes = fill(*tier, held[static_cast<std::size_t>(i)]);
        EXPECT_TRUE(read_all(*tier, held[static_cast<std::size_t>(i)]) == bytes);
    }
    EXPECT_GE(on_disk(), 12 * kMiB) << "used without blocks";
    EXPECT_TRUE(read_all(*tier, held[0]) == kept);
}

TEST_F(SwapTierTest, ItsBlocksAreFreeAtOnceWhoeverHoldsTheFile) {
    auto tier = *create(8 * kMiB);
    ASSERT_TRUE(tier->reserve(4 * kMiB).has_value());
    const int held = ::dup(swap_file());  // as a forked child has it
    ASSERT_GE(held, 0);
    tier.reset();
    struct stat status = {};
    ASSERT_EQ(::fstat(held, &status), 0);
    EXPECT_EQ(status.st_blocks, 0);
    ::close(held);
}

TEST_F(SwapTierTest, InMemoryItSaysThatNothingIsSaved) {
    const ScratchFolder memory(ScratchFolder::On::memory);
    if (memory.path().rfind("/dev/shm", 0) != 0) return;  // there is no such place
    const auto tier = *create_in(memory.path(), kMiB, kMiB);
    EXPECT_EQ(tier->info().label, Label::emulated);
    EXPECT_NE(tier->info().fallback.find("lies in memory"), std::string::npos);
}

TEST_F(SwapTierTest, TheShellsLimitOnFilesIsAnErrorAndNoSignal) {
    rlimit before = {};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
    const rlimit small = {2 * kMiB, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    {
        const auto tier = create(8 * kMiB);
        ASSERT_TRUE(tier.has_value()) << tier.error().message();
        const Extent fits = *(*tier)->reserve(kMiB);
        const Bytes bytes = fill(**tier, fits);
        const auto refused = (*tier)->reserve(2 * kMiB);
        ASSERT_FALSE(refused.has_value());
        EXPECT_EQ(refused.error().native(), EFBIG);
        EXPECT_TRUE(read_all(**tier, fits) == bytes);
        EXPECT_EQ(PmemTier::create({TierId{}, folder_.file("pmem"), 4 * kMiB}).error().native(),
                  EFBIG);
    }
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
}

TEST_F(SwapTierTest, AClosedTierSaysWhy) {
    const auto tier = *create(kMiB);
    const Extent extent = *tier->reserve(kPageBytes);
    {
        const FaultInjection fault({.call = Call::uring_result, .error = EROFS});
        EXPECT_FALSE(tier->write(extent, 0, Bytes(kPageBytes)).has_value());
    }
    const auto refused = tier->reserve(1);
    EXPECT_EQ(refused.error().code(), Errc::closed);
    EXPECT_NE(std::strstr(refused.error().message(), "Read-only file system"), nullptr);
}

TEST_F(SwapTierTest, WhereHolesCannotBePunchedBlocksStay) {
    const FaultInjection fault(
        {.call = Call::fallocate, .error = EOPNOTSUPP, .from_then_on = true});
    const auto tier = *SwapTier::create({.places = {folder_.path()},
                                         .size_bytes = 8 * kMiB,
                                         .growth_bytes = kMiB,
                                         .calls = &faulty_system_calls(),
                                         .keep_ns = 0});
    const Extent extent = *tier->reserve(8 * kMiB);
    tier->release(extent);
    EXPECT_EQ(fault.injected(), 1U) << "one refusal is enough";
    const auto again = tier->reserve(8 * kMiB);
    ASSERT_TRUE(again.has_value());
    tier->release(*again);
    EXPECT_EQ(fault.injected(), 1U) << "it asked again";
}

// A disk that really is full: a small tmpfs in a mount namespace of one thread's own.
TEST_F(SwapTierTest, ARealFullDiskIsAnErrorWhenRoomIsReserved) {
    bool mounted = false;
    std::thread([&] {
        mounted = ::unshare(CLONE_NEWNS) == 0 &&
                  ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                  ::mount("tmpfs", folder_.path().c_str(), "tmpfs", 0, "size=1m") == 0;
        if (!mounted) return;
        const auto tier = create_in(folder_.path(), 16 * kMiB, kMiB / 4);
        ASSERT_TRUE(tier.has_value()) << tier.error().message();
        std::vector<std::pair<Extent, Bytes>> held;
        while (const auto extent = (*tier)->reserve(20000)) {
            held.emplace_back(*extent, fill(**tier, *extent));
        }
        EXPECT_GT(held.size(), 45U);
        EXPECT_LE((*tier)->usage().used_bytes, kMiB);
        const auto refused = (*tier)->reserve(20000);
        EXPECT_EQ(refused.error().code(), Errc::no_space);
        EXPECT_EQ(refused.error().native(), ENOSPC);
        for (const auto& [extent, bytes] : held) EXPECT_TRUE(read_all(**tier, extent) == bytes);
        (*tier)->release(held.back().first);
        EXPECT_TRUE((*tier)->reserve(20000).has_value());
        // Nor does pmem start on such a disk, rather than end with SIGBUS later.
        const auto pmem = PmemTier::create({TierId{}, folder_.file("pmem"), 2 * kMiB});
        ASSERT_FALSE(pmem.has_value());
        EXPECT_EQ(pmem.error().code(), Errc::no_space) << pmem.error().message();
        EXPECT_EQ(folder_.entries(), 0U);
    }).join();
    if (!mounted) GTEST_SKIP() << "needs the right to mount a tmpfs";
}

}  // namespace
}  // namespace frostline
