// Opening, locking and mapping of the file behind the pmem tier.
#include "tiers/pmem_file.h"

#include <fcntl.h>
#include <libpmem.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <new>
#include <system_error>
#include <utility>

namespace frostline {
Result<PmemFile> PmemFile::open(const Options& options) noexcept {
    try {
        PmemFile file;
        file.calls_ = options.calls;
        // The program may change its directory before the file is removed.
        std::error_code no_directory;
        file.path_ = std::filesystem::absolute(options.path, no_directory).string();
        if (no_directory) file.path_ = options.path;
        FROSTLINE_TRY_VOID(file.acquire());
        std::uint64_t existing_bytes = 0;
        FROSTLINE_TRY_VOID(file.check_owner(options, existing_bytes));
        FROSTLINE_TRY_VOID(file.map(options, existing_bytes));
        return file;
    } catch (const std::bad_alloc&) {
        return Error(Errc::out_of_memory, 0, "pmem file '{}': no memory to open it", options.path);
    }
}

// Creating with O_EXCL tells whether the file is ours to remove at the end.
Result<void> PmemFile::acquire() {
    constexpr int kFlags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
    int fd = calls_->open(path_.c_str(), kFlags | O_CREAT | O_EXCL, 0600);
    created_ = fd >= 0;
    if (fd < 0 && errno == EEXIST) fd = calls_->open(path_.c_str(), kFlags, 0);
    if (fd < 0) {
        return system_error(errno,
                            "pmem file '{}': cannot be opened (it must be a regular file, not a "
                            "link, in a directory that exists and is writable)",
                            path_);
    }
    file_ = FileDescriptor(fd, *calls_);
    if (calls_->flock(fd, LOCK_EX | LOCK_NB) != 0) {
        const int error = errno;
        if (error == EWOULDBLOCK) created_ = false;  // whoever has the lock uses it
        return system_error(error,
                            "pmem file '{}': cannot be locked; it is in use by another process, "
                            "or by this one: give each user a file of its own",
                            path_);
    }
    return ok();
}

Result<void> PmemFile::check_owner(const Options& options, std::uint64_t& existing_bytes) {
    struct stat status = {};
    if (calls_->fstat(file_.get(), &status) != 0) {
        return system_error(errno, "pmem file '{}': cannot read its status", path_);
    }
    if (!S_ISREG(status.st_mode)) {
        return Error(Errc::invalid_argument, 0, "pmem file '{}': not a regular file", path_);
    }
    if (status.st_uid != geteuid()) {
        return Error(Errc::permission, 0, "pmem file '{}': belongs to another user (uid {})", path_,
                     status.st_uid);
    }
    // Others could read the training data that is about to be written here.
    if ((status.st_mode & 077) != 0) {
        return Error(Errc::permission, 0,
                     "pmem file '{}': others may read or write it; run chmod 600 on it", path_);
    }
    existing_bytes = static_cast<std::uint64_t>(status.st_size);
    const std::uint64_t needed_bytes = options.size_bytes > 0 ? options.size_bytes : kMinimumBytes;
    if (!created_ && existing_bytes < needed_bytes) {
        return Error(Errc::invalid_argument, 0,
                     "pmem file '{}': too small, it has {} bytes and {} are needed; remove it or "
                     "ask for less",
                     path_, existing_bytes, needed_bytes);
    }
    if (needed_bytes < kMinimumBytes) {
        return Error(Errc::invalid_argument, 0,
                     "pmem file '{}': {} bytes are too few, at least {} are needed", path_,
                     needed_bytes, kMinimumBytes);
    }
    return ok();
}

Result<void> PmemFile::map(const Options& options, std::uint64_t existing_bytes) {
    const std::uint64_t bytes = options.size_bytes > 0 ? options.size_bytes
                                : created_             ? kDefaultBytes
                                                       : existing_bytes;
    // Also for a file that was there: it may be sparse.
    int error = EINTR;
    while (error == EINTR) {
        error = calls_->posix_fallocate(file_.get(), 0, static_cast<off_t>(bytes));
    }
    if (error != 0) {
        return system_error(error, "pmem file '{}': cannot allocate {} bytes", path_, bytes);
    }
    // By descriptor: the path could name another file by now than the one that was checked.
    const std::string same_file = "/proc/self/fd/" + std::to_string(file_.get());
    std::size_t mapped = 0;
    int is_pmem = 0;
    void* const address = calls_->pmem_map_file(same_file.c_str(), 0, 0, 0, &mapped, &is_pmem);
    if (address == nullptr) {
        return system_error(errno, "pmem file '{}': cannot be mapped", path_);
    }
    address_ = static_cast<std::byte*>(address);
    is_pmem_ = is_pmem != 0;
    size_bytes_ = mapped;
    if (mapped < bytes) {
        return Error(Errc::io, 0, "pmem file '{}': only {} of {} bytes could be mapped", path_,
                     mapped, bytes);
    }
    return ok();
}

PmemFile::PmemFile(PmemFile&& other) noexcept
    : calls_(other.calls_),
      path_(std::move(other.path_)),
      file_(std::move(other.file_)),
      address_(std::exchange(other.address_, nullptr)),
      size_bytes_(other.size_bytes_),
      is_pmem_(other.is_pmem_),
      created_(std::exchange(other.created_, false)) {}

PmemFile& PmemFile::operator=(PmemFile&& other) noexcept {
    std::swap(calls_, other.calls_);
    std::swap(path_, other.path_);
    std::swap(file_, other.file_);
    std::swap(address_, other.address_);
    std::swap(size_bytes_, other.size_bytes_);
    std::swap(is_pmem_, other.is_pmem_);
    std::swap(created_, other.created_);
    return *this;
}

PmemFile::~PmemFile() {
    if (address_ != nullptr) (void)calls_->pmem_unmap(address_, size_bytes_);
    remove_if_created();
    // Closing would leave the lock with a forked child, which has the same open file. Like what
    // follows, this is not for the table: nothing depends on it.
    if (file_) (void)::flock(file_.get(), LOCK_UN);
}

// Unless the name means another file by now. Nobody else can be using this one: it is locked.
void PmemFile::remove_if_created() noexcept {
    if (!std::exchange(created_, false)) return;
    struct stat ours = {};
    struct stat named = {};
    const bool known = ::fstat(file_.get(), &ours) == 0 && ::lstat(path_.c_str(), &named) == 0;
    if (!known || (ours.st_dev == named.st_dev && ours.st_ino == named.st_ino)) {
        (void)calls_->unlink(path_.c_str());
    }
}

}  // namespace frostline
