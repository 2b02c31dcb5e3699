// The unlinked file, its growth, and positional reads and writes that tolerate short transfers.
#include "tiers/swap_tier.h"

#include "tiers/page.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <optional>
#include <utility>

namespace frostline {
namespace {

// O_TMPFILE leaves no name at any moment; file systems without it get a name for an instant.
Result<FileDescriptor> open_unlinked(const SystemCalls& calls, const std::string& directory) {
    int fd = calls.open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT)) {
        std::string path = directory + "/frostline-swap-XXXXXX";
        fd = calls.mkostemp(path.data(), O_CLOEXEC);
        if (fd >= 0 && calls.unlink(path.c_str()) != 0) {
            const int error = errno;
            const FileDescriptor closes(fd, calls);
            return system_error(error, "swap directory '{}': cannot unlink the swap file",
                                directory);
        }
    }
    if (fd < 0) {
        return system_error(errno,
                            "swap directory '{}': cannot create a file in it (it must be an "
                            "existing, writable directory)",
                            directory);
    }
    return FileDescriptor(fd, calls);
}

// A tenth stays free for everybody else's files.
Result<std::uint64_t> usable_bytes(const SystemCalls& calls, const FileDescriptor& file,
                                   const std::string& directory) {
    struct statvfs status = {};
    if (calls.fstatvfs(file.get(), &status) != 0) {
        return system_error(errno, "swap directory '{}': cannot read its free space", directory);
    }
    return std::uint64_t{status.f_bavail} * status.f_frsize / 10 * 9;
}

}  // namespace

Result<std::unique_ptr<SwapTier>> SwapTier::create(const Options& options) noexcept {
    try {
        FROSTLINE_TRY(FileDescriptor file, open_unlinked(*options.calls, options.directory));
        std::uint64_t capacity = options.size_bytes;
        if (capacity == 0) {
            FROSTLINE_TRY(capacity, usable_bytes(*options.calls, file, options.directory));
        }
        capacity = capacity / kPageBytes * kPageBytes;
        if (capacity == 0) {
            return Error(Errc::no_space, 0, "swap directory '{}': no room for a swap file",
                         options.directory);
        }
        std::unique_ptr<SwapTier> tier(new SwapTier(options, std::move(file), capacity));
        const std::lock_guard lock(tier->mutex_);
        FROSTLINE_TRY_VOID(tier->grow(kPageBytes));
        return tier;
    } catch (const std::bad_alloc&) {
        return Error(Errc::out_of_memory, 0, "swap tier: no memory for its own tables");
    }
}

SwapTier::SwapTier(const Options& options, FileDescriptor file, std::uint64_t capacity_bytes)
    : calls_(options.calls),
      file_(std::move(file)),
      info_{.id = options.id,
            .kind = TierKind::swap,
            .location = options.directory,
            .label = Label::real,
            .capacity_bytes = capacity_bytes,
            .granularity_bytes = kPageBytes,
            .host_addressable = false,
            .durable = false},
      growth_bytes_(std::max(round_up_to_page(options.growth_bytes), kPageBytes)),
      free_(0) {}

Result<Extent> SwapTier::reserve(std::uint64_t size_bytes) noexcept {
    if (size_bytes == 0) return Error(Errc::invalid_argument, 0, "swap tier: reserve of 0 bytes");
    if (!meter_.open()) {
        return Error(Errc::closed, 0, "swap tier in '{}': closed after a failure", info_.location);
    }
    try {
        const std::lock_guard lock(mutex_);
        return reserve_locked(size_bytes);
    } catch (const std::bad_alloc&) {
        return Error(Errc::out_of_memory, 0, "swap tier: no memory for its own tables");
    }
}

Result<Extent> SwapTier::reserve_locked(std::uint64_t size_bytes) {
    if (size_bytes > info_.capacity_bytes) {
        return Error(Errc::no_space, 0, "swap tier in '{}': {} bytes exceed its capacity of {}",
                     info_.location, size_bytes, info_.capacity_bytes);
    }
    const std::uint64_t charged = round_up_to_page(size_bytes);
    std::optional<std::uint64_t> offset = free_.take(charged);
    if (!offset) {
        FROSTLINE_TRY_VOID(grow(charged));
        offset = free_.take(charged);
    }
    meter_.add(charged);
    return Extent{info_.id, *offset, size_bytes};
}

// Makes room for `needed_bytes` in one piece at the end of the file, where some of it may be free
// already. Tries a whole growth step first and then just what is missing.
Result<void> SwapTier::grow(std::uint64_t needed_bytes) {
    const std::uint64_t size = free_.capacity_bytes();
    const std::uint64_t limit = info_.capacity_bytes - size;
    const std::uint64_t missing = needed_bytes - std::min(needed_bytes, free_.tail_bytes());
    if (missing > limit) {
        return Error(Errc::no_space, 0, "swap tier in '{}': {} bytes do not fit, {} of {} in use",
                     info_.location, needed_bytes, meter_.used_bytes(), info_.capacity_bytes);
    }
    int error = 0;
    for (const std::uint64_t bytes : {std::min(std::max(growth_bytes_, missing), limit), missing}) {
        do {
            error = calls_->posix_fallocate(file_.get(), static_cast<off_t>(size),
                                            static_cast<off_t>(bytes));
        } while (error == EINTR);
        if (error == 0) {
            free_.grow(bytes);
            return ok();
        }
    }
    return system_error(error, "swap tier in '{}': cannot grow by {} bytes, {} of {} in use",
                        info_.location, missing, meter_.used_bytes(), info_.capacity_bytes);
}

void SwapTier::release(const Extent& extent) noexcept {
    const std::lock_guard lock(mutex_);
    const std::uint64_t charged = round_up_to_page(extent.length_bytes);
    free_.give(extent.offset, charged);
    meter_.subtract(charged);
}

Result<void> SwapTier::write(const Extent& extent, std::uint64_t offset,
                             std::span<const std::byte> bytes) noexcept {
    while (!bytes.empty()) {
        const ssize_t done = calls_->pwrite(file_.get(), bytes.data(), bytes.size(),
                                            static_cast<off_t>(extent.offset + offset));
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) {
            const int error = done < 0 ? errno : EIO;
            meter_.close();
            return system_error(error,
                                "swap tier in '{}': writing {} bytes failed; it takes no new data",
                                info_.location, bytes.size());
        }
        bytes = bytes.subspan(static_cast<std::size_t>(done));
        offset += static_cast<std::uint64_t>(done);
    }
    return ok();
}

Result<void> SwapTier::read(const Extent& extent, std::uint64_t offset,
                            std::span<std::byte> bytes) noexcept {
    while (!bytes.empty()) {
        const ssize_t done = calls_->pread(file_.get(), bytes.data(), bytes.size(),
                                           static_cast<off_t>(extent.offset + offset));
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) {
            return system_error(errno, "swap tier in '{}': reading {} bytes failed", info_.location,
                                bytes.size());
        }
        if (done == 0) {
            return Error(Errc::corrupt, 0, "swap tier in '{}': the file is shorter than it was",
                         info_.location);
        }
        bytes = bytes.subspan(static_cast<std::size_t>(done));
        offset += static_cast<std::uint64_t>(done);
    }
    return ok();
}

Result<void> SwapTier::fence(std::span<const Extent>) noexcept {
    return ok();
}

std::byte* SwapTier::host_address(const Extent&) const noexcept {
    return nullptr;
}

Result<std::unique_ptr<TransferQueue>> SwapTier::open_queue() noexcept {
    return std::unique_ptr<TransferQueue>();
}

}  // namespace frostline
