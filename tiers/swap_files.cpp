// Opening, striping, allocating and punching.
#include "tiers/swap_files.h"

#include "tiers/file_size_limit.h"
#include "tiers/page.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <linux/magic.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

namespace frostline {
namespace {

// What is not there is no device; whoever opens it says so.
Result<bool> is_block_device(const SystemCalls& calls, const std::string& path) {
    const FileDescriptor file(calls.open(path.c_str(), O_PATH | O_CLOEXEC, 0), calls);
    struct stat status = {};
    if (!file) return false;
    if (calls.fstat(file.get(), &status) != 0) {
        return system_error(errno, "swap place '{}': cannot read its status", path);
    }
    return S_ISBLK(status.st_mode);
}

// O_TMPFILE leaves no name at any moment; file systems without it get a name for an instant.
Result<FileDescriptor> open_unnamed(const SystemCalls& calls, const std::string& directory,
                                    int flags) {
    flags |= O_CLOEXEC;
    int fd = calls.open(directory.c_str(), O_TMPFILE | O_RDWR | flags, 0600);
    if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT)) {
        std::string path = directory + "/frostline-swap-XXXXXX";
        fd = calls.mkostemp(path.data(), flags);
        if (fd >= 0 && calls.unlink(path.c_str()) != 0) {
            const int error = errno;
            const FileDescriptor closes(fd, calls);
            return system_error(error, "swap directory '{}': cannot unlink the swap file",
                                directory);
        }
    }
    if (fd < 0 && errno == EINVAL && (flags & O_DIRECT) != 0) {
        return Error(Errc::unsupported, 0, "the file system of '{}' refuses O_DIRECT", directory);
    }
    if (fd < 0) {
        return system_error(errno,
                            "swap directory '{}': cannot create a file in it (it must be an "
                            "existing, writable directory, or a block device)",
                            directory);
    }
    return FileDescriptor(fd, calls);
}

}  // namespace

Result<SwapFiles> SwapFiles::open(const Options& options) noexcept {
    try {
        if (options.places.empty()) {
            return Error(Errc::invalid_argument, 0, "swap tier: no directory was given");
        }
        SwapFiles files;
        files.calls_ = options.calls;
        files.direct_ = options.direct;
        files.location_ = fmt::format("{}", fmt::join(options.places, ", "));
        for (const std::string& place : options.places) {
            FROSTLINE_TRY(File file, open_place(options, place));
            struct statfs system = {};
            if (options.calls->fstatfs(file.descriptor.get(), &system) != 0) {
                return system_error(errno, "swap place '{}': cannot read its file system", place);
            }
            const bool in_memory = system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC;
            if (in_memory && file.device_bytes == 0) files.place_in_memory_ = place;
            files.files_.push_back(std::move(file));
        }
        return files;
    } catch (const std::bad_alloc&) {
        return Error(Errc::out_of_memory, 0, "swap tier: no memory for its own tables");
    }
}

Result<SwapFiles::File> SwapFiles::open_place(const Options& options, const std::string& place) {
    FROSTLINE_TRY(const bool device, is_block_device(*options.calls, place));
    if (device) return open_device(options, place);
    File file{place, {}, 0, 0};
    FROSTLINE_TRY(file.descriptor,
                  open_unnamed(*options.calls, place, options.direct ? O_DIRECT : 0));
    struct stat status = {};
    if (options.calls->fstat(file.descriptor.get(), &status) != 0) {
        return system_error(errno, "swap directory '{}': cannot read the file's status", place);
    }
    file.file_system = status.st_dev;
    return file;
}

Result<SwapFiles::File> SwapFiles::open_device(const Options& options, const std::string& place) {
    if (!options.block_devices) {
        return Error(Errc::invalid_argument, 0,
                     "swap device '{}': a block device would be overwritten; allow block devices "
                     "explicitly (swap_devices), or give a directory",
                     place);
    }
    // O_EXCL: not while it is mounted or otherwise in use.
    const int flags = O_RDWR | O_EXCL | O_CLOEXEC | O_NOFOLLOW | (options.direct ? O_DIRECT : 0);
    const int fd = options.calls->open(place.c_str(), flags, 0);
    if (fd < 0 && errno == ELOOP) {
        return Error(Errc::invalid_argument, 0,
                     "swap device '{}': it is a link; give the name of the device itself", place);
    }
    if (fd < 0) {
        return system_error(errno, "swap device '{}': cannot be opened for sole use", place);
    }
    File file{place, FileDescriptor(fd, *options.calls), 0, 0};
    if (options.calls->block_device_size(fd, &file.device_bytes) != 0) {
        return system_error(errno, "swap device '{}': cannot read its size", place);
    }
    return file;
}

Result<std::uint64_t> SwapFiles::usable_bytes() const {
    std::uint64_t smallest = UINT64_MAX;
    for (const File& file : files_) {
        std::uint64_t bytes = file.device_bytes;
        if (bytes == 0) {
            struct statvfs status = {};
            if (calls_->fstatvfs(file.descriptor.get(), &status) != 0) {
                return system_error(errno, "swap directory '{}': cannot read its free space",
                                    file.name);
            }
            // A tenth stays free for everybody else's files; places on one disk share the rest.
            const auto shared = static_cast<std::uint64_t>(
                std::count_if(files_.begin(), files_.end(), [&](const File& each) {
                    return each.file_system == file.file_system && each.device_bytes == 0;
                }));
            bytes = std::uint64_t{status.f_bavail} * status.f_frsize / 10 * 9 / shared;
        }
        smallest = std::min(smallest, bytes);
    }
    return striped(smallest);
}

std::uint64_t SwapFiles::device_limit_bytes() const noexcept {
    std::uint64_t smallest = UINT64_MAX;
    for (const File& file : files_) {
        if (file.device_bytes > 0) smallest = std::min(smallest, file.device_bytes);
    }
    return smallest == UINT64_MAX ? smallest : striped(smallest);
}

// What all files together hold if each holds no more than the smallest.
std::uint64_t SwapFiles::striped(std::uint64_t smallest_bytes) const noexcept {
    if (files_.size() == 1) return smallest_bytes / kPageBytes * kPageBytes;
    return smallest_bytes / kStripeBytes * kStripeBytes * files_.size();
}

// How many bytes of [0, offset) lie in that file.
std::uint64_t SwapFiles::bytes_before(std::size_t file, std::uint64_t offset) const noexcept {
    if (files_.size() == 1) return offset;
    const std::uint64_t stripes = offset / kStripeBytes;
    const std::uint64_t rounds = stripes / files_.size();
    const std::uint64_t next = stripes % files_.size();  // the file that the last stripe is in
    std::uint64_t bytes = rounds * kStripeBytes;
    if (file < next) bytes += kStripeBytes;
    if (file == next) bytes += offset % kStripeBytes;
    return bytes;
}

SwapFiles::Place SwapFiles::place(std::uint64_t offset) const noexcept {
    if (files_.size() == 1) return {0, offset, UINT64_MAX};
    const std::uint64_t stripe = offset / kStripeBytes;
    const std::uint64_t within = offset % kStripeBytes;
    return {static_cast<unsigned>(stripe % files_.size()),
            stripe / files_.size() * kStripeBytes + within, kStripeBytes - within};
}

SwapFiles::Part SwapFiles::part(std::size_t file, std::uint64_t offset,
                                std::uint64_t size_bytes) const noexcept {
    const std::uint64_t start = bytes_before(file, offset);
    return {static_cast<off_t>(start),
            static_cast<off_t>(bytes_before(file, offset + size_bytes) - start)};
}

int SwapFiles::change_blocks(const File& file, int mode, const Part& part) const noexcept {
    int error = EINTR;
    while (error == EINTR) {
        const int result = calls_->fallocate(file.descriptor.get(), mode, part.start, part.length);
        error = result == 0 ? 0 : errno;
    }
    return error;
}

Result<void> SwapFiles::allocate(std::uint64_t offset, std::uint64_t size_bytes) const {
    for (std::size_t i = 0; i < files_.size(); ++i) {
        const File& file = files_[i];
        const Part part = this->part(i, offset, size_bytes);
        if (part.length == 0) continue;
        int error = EINTR;
        if (file.device_bytes > 0) {
            // What lies on a device is somebody else's.
            error = change_blocks(file, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, part);
        } else if (const auto end = static_cast<std::uint64_t>(part.start + part.length);
                   end > file_size_limit_bytes()) {
            return system_error(EFBIG, "swap tier in '{}': cannot grow to {} bytes (ulimit -f)",
                                file.name, end);
        } else {
            while (error == EINTR) {
                error = calls_->posix_fallocate(file.descriptor.get(), part.start, part.length);
            }
        }
        if (error != 0) {
            return system_error(error, "swap tier in '{}': cannot grow by {} bytes", file.name,
                                size_bytes);
        }
    }
    return ok();
}

Result<void> SwapFiles::punch(std::uint64_t offset, std::uint64_t size_bytes) const {
    for (std::size_t i = 0; i < files_.size(); ++i) {
        const Part part = this->part(i, offset, size_bytes);
        if (part.length == 0) continue;
        const int error =
            change_blocks(files_[i], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, part);
        if (error != 0) {
            return system_error(error, "swap tier in '{}': cannot give {} bytes back",
                                files_[i].name, size_bytes);
        }
    }
    return ok();
}

void SwapFiles::empty_files() const noexcept {
    for (const File& file : files_) {
        // Where it fails the blocks go when the last who holds the file open lets go.
        if (file.device_bytes == 0) (void)calls_->ftruncate(file.descriptor.get(), 0);
    }
}

Result<bool> SwapFiles::takes_direct() const {
    alignas(kPageBytes) std::byte page[kPageBytes] = {};
    for (const File& file : files_) {
        ssize_t done = -1;
        do {
            done = calls_->pwrite(file.descriptor.get(), page, sizeof page, 0);
        } while (done < 0 && errno == EINTR);
        if (done < 0 && errno == EINVAL) return false;
        if (done < 0) return system_error(errno, "swap tier in '{}': cannot be written", file.name);
    }
    return true;
}

}  // namespace frostline
