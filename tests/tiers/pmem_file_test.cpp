// Proves which files the pmem tier accepts, what it says about the others and leaves of them, and
// that one process at a time uses a file.
#include "tiers/pmem_file.h"
#include "tests/tiers/process_state.h"
#include "tests/tiers/tier_specimen.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace frostline {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class PmemFileTest : public testing::Test {
   protected:
    std::string path() const { return folder_.file("pool"); }
    Result<PmemFile> open(std::uint64_t size_bytes = kMiB) const {
        return open(path(), size_bytes);
    }
    static Result<PmemFile> open(const std::string& path, std::uint64_t size_bytes = kMiB) {
        return PmemFile::open({path, size_bytes, &faulty_system_calls()});
    }
    void make_file(std::uint64_t size_bytes, mode_t mode = 0600) const {
        std::ofstream(path()) << "keep me";
        ASSERT_EQ(::truncate(path().c_str(), static_cast<off_t>(size_bytes)), 0);
        ASSERT_EQ(::chmod(path().c_str(), mode), 0);
    }
    static struct stat status(const std::string& path) {
        struct stat status = {};
        EXPECT_EQ(::lstat(path.c_str(), &status), 0) << path;
        return status;
    }
    /// Opening is refused with that code and words, leaks nothing, and leaves `entries` files.
    void expect_refused(const Result<PmemFile>& file, Errc code, const std::string& words,
                        std::size_t entries) const {
        ASSERT_FALSE(file.has_value());
        EXPECT_EQ(file.error().code(), code) << file.error().message();
        const std::string message = file.error().message();
        EXPECT_NE(message.find(words), std::string::npos) << message;
        EXPECT_NE(message.find(folder_.path()), std::string::npos) << message;
        EXPECT_EQ(folder_.entries(), entries);
        EXPECT_EQ(open_descriptors(), descriptors_);
        EXPECT_EQ(mappings_of(folder_.path()), 0U);
    }

    ScratchFolder folder_;
    std::size_t descriptors_ = open_descriptors();
};

TEST_F(PmemFileTest, ANewFileIsPrivateAllocatedAndGoneAtTheEnd) {
    {
        const mode_t mask = ::umask(0);
        const auto file = open(3 * kMiB);
        ::umask(mask);
        ASSERT_TRUE(file.has_value()) << file.error().message();
        EXPECT_EQ(file->size_bytes(), 3 * kMiB);
        EXPECT_EQ(status(path()).st_mode & 07777, 0600U);
        EXPECT_EQ(status(path()).st_size, static_cast<off_t>(3 * kMiB));
        EXPECT_GE(status(path()).st_blocks * 512, static_cast<blkcnt_t>(3 * kMiB)) << "sparse";
        EXPECT_EQ(mappings_of(path()), 1U);
    }
    EXPECT_EQ(folder_.entries(), 0U);
    EXPECT_EQ(mappings_of(path()), 0U);
    EXPECT_EQ(open_descriptors(), descriptors_);
}

TEST_F(PmemFileTest, AFileThatWasThereStays) {
    make_file(2 * kMiB);
    {
        const auto file = open(0);
        ASSERT_TRUE(file.has_value()) << file.error().message();
        EXPECT_EQ(file->size_bytes(), 2 * kMiB);
        EXPECT_GE(status(path()).st_blocks * 512, static_cast<blkcnt_t>(2 * kMiB)) << "sparse";
        file->address()[kMiB] = std::byte{1};
    }
    EXPECT_EQ(status(path()).st_size, static_cast<off_t>(2 * kMiB));
    EXPECT_TRUE(open(kMiB).has_value()) << "the lock was not given up";
    EXPECT_EQ(folder_.entries(), 1U);
}

TEST_F(PmemFileTest, AMovedFileHasOneOwner) {
    {
        auto file = open();
        ASSERT_TRUE(file.has_value());
        PmemFile second = *std::move(file);
        auto other = open(folder_.file("other"));
        ASSERT_TRUE(other.has_value());
        std::byte* const address = second.address();
        *other = std::move(second);
        EXPECT_EQ(other->address(), address);
        EXPECT_EQ(folder_.entries(), 2U);
        EXPECT_EQ(mappings_of(folder_.path()), 2U);
    }
    EXPECT_EQ(folder_.entries(), 0U);
    EXPECT_EQ(open_descriptors(), descriptors_);
}

TEST_F(PmemFileTest, ALinkIsRefusedAndWhatItNamesIsUntouched) {
    const std::string target = folder_.file("precious");
    std::ofstream(target) << std::string(2 * kMiB, 'x');
    ASSERT_EQ(::chmod(target.c_str(), 0600), 0);
    ASSERT_EQ(::symlink(target.c_str(), path().c_str()), 0);
    expect_refused(open(), Errc::permission, "it is a link", 2);
    EXPECT_EQ(status(target).st_size, static_cast<off_t>(2 * kMiB));
    ASSERT_EQ(::unlink(target.c_str()), 0);
    expect_refused(open(), Errc::permission, "it is a link", 1);  // dangling: nothing is created
}

TEST_F(PmemFileTest, AFileThatOthersMayReadOrWriteIsRefused) {
    for (const mode_t mode : {0644U, 0640U, 0604U, 0620U, 0602U, 0601U, 0666U}) {
        make_file(2 * kMiB, mode);
        expect_refused(open(), Errc::permission, "chmod 600", 1);
    }
}

TEST_F(PmemFileTest, AFileOfSomebodyElseIsRefused) {
    static thread_local bool foreign = false;
    SystemCalls calls = SystemCalls::real();
    calls.fstat = [](int fd, struct stat* out) {
        const int result = ::fstat(fd, out);
        if (foreign) ++out->st_uid;
        return result;
    };
    make_file(2 * kMiB);
    foreign = true;
    expect_refused(PmemFile::open({path(), kMiB, &calls}), Errc::permission, "another user", 1);
    foreign = false;
    EXPECT_TRUE(PmemFile::open({path(), kMiB, &calls}).has_value());
}

TEST_F(PmemFileTest, AFileThatIsTooSmallIsRefused) {
    make_file(2 * kMiB - 1);
    expect_refused(open(2 * kMiB), Errc::invalid_argument, "too small", 1);
    EXPECT_EQ(status(path()).st_size, static_cast<off_t>(2 * kMiB - 1)) << "it was grown";
    make_file(PmemFile::kMinimumBytes - 1);
    expect_refused(open(0), Errc::invalid_argument, "too small", 1);
    make_file(1);
    expect_refused(open(0), Errc::invalid_argument, "too small", 1);
}

TEST_F(PmemFileTest, ANewFileNeedsAtLeastTheMinimum) {
    expect_refused(open(PmemFile::kMinimumBytes - 1), Errc::invalid_argument, "too few", 0);
    expect_refused(open(UINT64_MAX / 2 - 5), Errc::no_space, "cannot allocate", 0);
}

TEST_F(PmemFileTest, ADirectoryThatIsMissingOrNoneIsNamed) {
    expect_refused(open(folder_.file("missing/pool")), Errc::not_found, "No such file or directory",
                   0);
    make_file(5);
    expect_refused(open(path() + "/pool"), Errc::not_found, "Not a directory", 1);
    expect_refused(open(folder_.path()), Errc::invalid_argument, "Is a directory", 1);
}

TEST_F(PmemFileTest, APipeIsNoRegularFile) {
    ASSERT_EQ(::mkfifo(path().c_str(), 0600), 0);
    expect_refused(open(), Errc::invalid_argument, "not a regular file", 1);
}

TEST_F(PmemFileTest, ADirectoryThatCannotBeWrittenIsAnError) {
    for (const int error : {EROFS, EACCES}) {
        const FaultInjection fault({.call = Call::open, .error = error});
        expect_refused(open(), Errc::permission, std::strerror(error), 0);
    }
}

TEST_F(PmemFileTest, TwoUsersOfOneProcessAreRefused) {
    const auto first = open();
    ASSERT_TRUE(first.has_value());
    const auto second = open();
    ASSERT_FALSE(second.has_value());
    EXPECT_EQ(second.error().code(), Errc::busy);
    EXPECT_EQ(folder_.entries(), 1U) << "the loser removed the winner's file";
}

// A child that holds the file until it is told to end; the pipes order what happens.
class Holder {
   public:
    explicit Holder(const std::string& path) {
        EXPECT_EQ(::pipe(ready_), 0);
        EXPECT_EQ(::pipe(end_), 0);
        child_ = ::fork();
        if (child_ == 0) {
            const int fd = ::open(path.c_str(), O_RDWR | O_CREAT, 0600);
            const char locked = ::flock(fd, LOCK_EX | LOCK_NB) == 0 ? 'y' : 'n';
            char word = 0;
            (void)!::write(ready_[1], &locked, 1);
            (void)!::read(end_[0], &word, 1);
            ::_exit(0);
        }
        char locked = 0;
        EXPECT_EQ(::read(ready_[0], &locked, 1), 1);
        EXPECT_EQ(locked, 'y');
    }
    void end() {
        EXPECT_EQ(::write(end_[1], "e", 1), 1);
        EXPECT_EQ(::waitpid(child_, nullptr, 0), child_);
        for (const int fd : {ready_[0], ready_[1], end_[0], end_[1]}) ::close(fd);
    }

   private:
    int ready_[2] = {-1, -1};
    int end_[2] = {-1, -1};
    pid_t child_ = -1;
};

TEST_F(PmemFileTest, AFileInUseByAnotherProcessIsBusyUntilThatEnds) {
    make_file(2 * kMiB);
    Holder holder(path());
    descriptors_ = open_descriptors();
    expect_refused(open(), Errc::busy, "another process", 1);
    holder.end();
    EXPECT_TRUE(open().has_value());
}

TEST_F(PmemFileTest, TheLoserOfARaceForANewFileDoesNotRemoveIt) {
    // Somebody locks the file between its creation and our lock.
    SystemCalls calls = SystemCalls::real();
    static std::string contested;
    static std::unique_ptr<Holder> holder;
    contested = path();
    calls.flock = [](int fd, int operation) {
        holder = std::make_unique<Holder>(contested);
        return ::flock(fd, operation);
    };
    const auto file = PmemFile::open({path(), kMiB, &calls});
    ASSERT_FALSE(file.has_value());
    EXPECT_EQ(file.error().code(), Errc::busy);
    EXPECT_EQ(folder_.entries(), 1U);
    holder->end();
}

TEST_F(PmemFileTest, EveryStepThatFailsSaysSoAndLeavesNothing) {
    struct Step {
        Call call;
        int error;
        Errc code;
    };
    for (const Step& step :
         {Step{Call::open, EMFILE, Errc::io}, Step{Call::flock, ENOLCK, Errc::io},
          Step{Call::fstat, EIO, Errc::io}, Step{Call::posix_fallocate, ENOSPC, Errc::no_space},
          Step{Call::posix_fallocate, EDQUOT, Errc::no_space},
          Step{Call::pmem_map_file, ENOMEM, Errc::out_of_memory},
          Step{Call::pmem_map_file, EAGAIN, Errc::busy}}) {
        const FaultInjection fault({.call = step.call, .error = step.error});
        expect_refused(open(), step.code, std::strerror(step.error), 0);
        EXPECT_EQ(fault.injected(), 1U) << name(step.call);
    }
    const FaultInjection fault({.call = Call::pmem_map_file, .falls_short = true});
    expect_refused(open(4 * kMiB), Errc::io, "could be mapped", 0);
}

TEST_F(PmemFileTest, AnInterruptedAllocationGoesOn) {
    const FaultInjection fault({.call = Call::posix_fallocate, .error = EINTR});
    EXPECT_TRUE(open().has_value()) << "a signal is no reason to fail";
    EXPECT_EQ(fault.injected(), 1U);
}

}  // namespace
}  // namespace frostline
