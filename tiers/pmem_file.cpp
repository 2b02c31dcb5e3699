// Opening, locking and mapping of the file or device behind the pmem tier.
#include "tiers/pmem_file.h"

#include "tiers/dax_device.h"
#include "tiers/file_size_limit.h"

#include <fcntl.h>
#include <libpmem.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <string_view>
#include <system_error>
#include <utility>

namespace frostline {
namespace {

// libpmem can be told to take any mapping for persistent memory, and then says so of a file, too.
bool pmem_is_forced() {
    const char* const forced = std::getenv("PMEM_IS_PMEM_FORCE");
    return forced != nullptr && std::string_view(forced) == "1";
}

}  // namespace

Result<PmemFile> PmemFile::open(const Options& options) noexcept {
    try {
        PmemFile file;
        file.calls_ = options.calls;
        // The program may change its directory before the file is removed.
        std::error_code no_directory;
        file.path_ = std::filesystem::absolute(options.path, no_directory).string();
        if (no_directory) file.path_ = options.path;
        FROSTLINE_TRY_VOID(file.acquire());
        struct stat status = {};
        if (file.calls_->fstat(file.file_.get(), &status) != 0) {
            return system_error(errno, "pmem file '{}': cannot read its status", file.path_);
        }
        // First of all what it is: nobody should be told to change the mode of another device.
        const bool device = S_ISCHR(status.st_mode);
        if (device) FROSTLINE_TRY_VOID(file.prepare_device(options, status.st_rdev));
        FROSTLINE_TRY_VOID(file.check_owner(status));
        if (!device) {
            FROSTLINE_TRY_VOID(
                file.prepare_file(options, static_cast<std::uint64_t>(status.st_size)));
        }
        FROSTLINE_TRY_VOID(file.map());
        if (options.keep_content) file.created_ = false;
        return file;
    } catch (const std::bad_alloc&) {
        return Error(Errc::out_of_memory, 0, "pmem file '{}': no memory to open it", options.path);
    }
}

// Creating with O_EXCL tells whether the file is ours to remove at the end.
Result<void> PmemFile::acquire() {
    constexpr int kFlags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
    // A device that is not there must not become a file: in /dev it would lie in DRAM.
    const bool device = std::filesystem::path(path_).lexically_normal().parent_path() == "/dev";
    int fd = device ? calls_->open(path_.c_str(), kFlags, 0)
                    : calls_->open(path_.c_str(), kFlags | O_CREAT | O_EXCL, 0600);
    created_ = fd >= 0 && !device;
    if (fd < 0 && errno == EEXIST) fd = calls_->open(path_.c_str(), kFlags, 0);
    if (fd < 0 && errno == ELOOP) {
        return system_error(ELOOP, "pmem file '{}': it is a link; give the name it leads to",
                            path_);
    }
    if (fd < 0) {
        return system_error(errno,
                            "pmem file '{}': cannot be opened (it must be a regular file or a DAX "
                            "device, not a link, in a directory that exists and is writable)",
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

Result<void> PmemFile::check_owner(const struct stat& status) const {
    if (!S_ISREG(status.st_mode) && !S_ISCHR(status.st_mode)) {
        return Error(Errc::invalid_argument, 0,
                     "pmem file '{}': not a regular file or a DAX device", path_);
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
    return ok();
}

Result<void> PmemFile::prepare_file(const Options& options, std::uint64_t existing_bytes) {
    // Such a file is left where a process was killed while it made one.
    if (existing_bytes == 0 && !options.keep_content) created_ = true;
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
    size_bytes_ = options.size_bytes > 0 ? options.size_bytes
                  : created_             ? kDefaultBytes
                                         : existing_bytes;
    if (!created_ && !options.keep_content) FROSTLINE_TRY_VOID(erase(size_bytes_));
    if (!created_ && !options.allocate) return ok();
    if (size_bytes_ > file_size_limit_bytes()) {
        return system_error(EFBIG, "pmem file '{}': cannot have {} bytes (ulimit -f)", path_,
                            size_bytes_);
    }
    // Also for a file that was there: it may be sparse.
    int error = EINTR;
    while (error == EINTR) {
        error = calls_->posix_fallocate(file_.get(), 0, static_cast<off_t>(size_bytes_));
    }
    if (error != 0) {
        return system_error(error, "pmem file '{}': cannot allocate {} bytes", path_, size_bytes_);
    }
    return ok();
}

// Blocks that are given up and allocated again read as zeros, which costs far less than writing
// zeros. Where a file system cannot do it, room is zeroed when it is handed out.
Result<void> PmemFile::erase(std::uint64_t size_bytes) {
    int result = -1;
    do {
        result = calls_->fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                                   static_cast<off_t>(size_bytes));
    } while (result != 0 && errno == EINTR);
    if (result == 0) return ok();
    if (errno != EOPNOTSUPP && errno != ENOSYS) {
        return system_error(errno, "pmem file '{}': cannot be erased", path_);
    }
    needs_scrubbing_ = true;
    return ok();
}

Result<void> PmemFile::prepare_device(const Options& options, dev_t number) {
    FROSTLINE_TRY(const DaxDevice device, DaxDevice::find(number, path_, *calls_));
    if (options.size_bytes > device.size_bytes) {
        return Error(Errc::invalid_argument, 0,
                     "pmem device '{}': too small, it has {} bytes and {} are needed", path_,
                     device.size_bytes, options.size_bytes);
    }
    medium_ = PmemMedium::devdax;
    size_bytes_ = device.size_bytes;
    needs_scrubbing_ = !options.keep_content;
    return ok();
}

Result<void> PmemFile::map() {
    const std::uint64_t needed_bytes = std::exchange(size_bytes_, 0);
    // By descriptor: the path could name another file by now than the one that was checked.
    const std::string same_file = "/proc/self/fd/" + std::to_string(file_.get());
    std::size_t mapped = 0;
    int is_pmem = 0;
    void* const address = calls_->pmem_map_file(same_file.c_str(), 0, 0, 0, &mapped, &is_pmem);
    if (address == nullptr) {
        return system_error(errno, "pmem file '{}': cannot be mapped", path_);
    }
    address_ = static_cast<std::byte*>(address);
    size_bytes_ = mapped;
    // A device has no page cache that msync could write back, whatever libpmem was told.
    is_pmem_ = is_pmem != 0 || medium_ == PmemMedium::devdax;
    if (medium_ == PmemMedium::file && is_pmem_ && !pmem_is_forced()) medium_ = PmemMedium::fsdax;
    if (mapped < needed_bytes) {
        return Error(Errc::io, 0, "pmem file '{}': only {} of {} bytes could be mapped", path_,
                     mapped, needed_bytes);
    }
    return ok();
}

PmemFile::PmemFile(PmemFile&& other) noexcept
    : calls_(other.calls_),
      path_(std::move(other.path_)),
      file_(std::move(other.file_)),
      address_(std::exchange(other.address_, nullptr)),
      size_bytes_(other.size_bytes_),
      medium_(other.medium_),
      is_pmem_(other.is_pmem_),
      needs_scrubbing_(other.needs_scrubbing_),
      created_(std::exchange(other.created_, false)) {}

PmemFile& PmemFile::operator=(PmemFile&& other) noexcept {
    std::swap(calls_, other.calls_);
    std::swap(path_, other.path_);
    std::swap(file_, other.file_);
    std::swap(address_, other.address_);
    std::swap(size_bytes_, other.size_bytes_);
    std::swap(medium_, other.medium_);
    std::swap(is_pmem_, other.is_pmem_);
    std::swap(needs_scrubbing_, other.needs_scrubbing_);
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
