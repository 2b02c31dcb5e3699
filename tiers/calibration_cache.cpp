// The file: opened relative to its folder, so that neither can be exchanged on the way; written
// under the folder's lock, beside the old one, and then renamed.
#include "tiers/calibration_cache.h"

#include "tiers/calibration_format.h"
#include "tiers/file_descriptor.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <exception>
#include <new>
#include <string_view>
#include <thread>

namespace frostline {
namespace {

constexpr const char* kName = "calibration.json";
constexpr const char* kNewName = "calibration.json.new";
constexpr std::size_t kMostFileBytes = std::size_t{1} << 20;
constexpr std::int64_t kSecondsADay = 24 * 60 * 60;
// Nobody holds the lock longer than it takes to write a small file.
constexpr int kLockAttempts = 100;
constexpr std::chrono::milliseconds kLockPause{2};

Result<void> check_owner(const struct stat& status, uid_t owner, mode_t forbidden,
                         const std::string& path) {
    if (status.st_uid != owner) {
        return Error(Errc::permission, 0, "'{}' belongs to user {}, not {}", path, status.st_uid,
                     owner);
    }
    if ((status.st_mode & forbidden) != 0) {
        return Error(Errc::permission, 0, "others can write to '{}'", path);
    }
    return ok();
}

Result<FileDescriptor> open_folder(const std::string& path, uid_t owner) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return system_error(errno, "cannot open the cache folder '{}'", path);
    FileDescriptor folder(fd, SystemCalls::real());
    struct stat status = {};
    if (::fstat(fd, &status) != 0) return system_error(errno, "cannot examine '{}'", path);
    // A folder of the user's group is common; whoever writes there cannot make a file of the
    // user's.
    FROSTLINE_TRY_VOID(check_owner(status, owner, S_IWOTH, path));
    return folder;
}

// As `mkdir -p`, for this user alone.
Result<void> make_folders(const std::string& path) {
    for (std::size_t end = 1; end != std::string::npos;) {
        end = path.find('/', end + 1);
        const std::string part = path.substr(0, end);
        if (::mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) {
            return system_error(errno, "cannot make the cache folder '{}'", part);
        }
    }
    return ok();
}

Result<void> lock(int folder, const std::string& path) {
    for (int attempt = 0; attempt < kLockAttempts; ++attempt) {
        if (::flock(folder, LOCK_EX | LOCK_NB) == 0) return ok();
        if (errno != EWOULDBLOCK && errno != EINTR) {
            return system_error(errno, "cannot lock the cache folder '{}'", path);
        }
        std::this_thread::sleep_for(kLockPause);
    }
    return Error(Errc::busy, 0, "another process keeps '{}' locked", path);
}

Result<std::string> read_all(int fd, const std::string& path) {
    std::string text;
    while (true) {
        const std::size_t had = text.size();
        if (had > kMostFileBytes) return Error(Errc::corrupt, 0, "'{}' is far too long", path);
        text.resize(had + 65536);
        const ssize_t got = ::read(fd, text.data() + had, text.size() - had);
        if (got < 0 && errno != EINTR) return system_error(errno, "cannot read '{}'", path);
        text.resize(had + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
        if (got == 0) return text;
    }
}

Result<void> write_all(int fd, std::string_view text, const std::string& path) {
    while (!text.empty()) {
        const ssize_t put = ::write(fd, text.data(), text.size());
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return system_error(put < 0 ? errno : EIO, "cannot write '{}'", path);
        text.remove_prefix(static_cast<std::size_t>(put));
    }
    return ok();
}

bool expired(const CachedCalibration& entry, std::int64_t now_s) {
    // One from the future is of a clock that was set back: it would never expire.
    return entry.measured_at_s > now_s ||
           now_s - entry.measured_at_s > CalibrationCache::kDaysUntilExpiry * kSecondsADay;
}

// What may fail for lack of memory, and the JSON library's own exceptions.
template <class Action>
auto without_exceptions(Action&& action) noexcept -> decltype(action()) {
    try {
        return action();
    } catch (const std::bad_alloc&) {
        return Error(Errc::out_of_memory, 0, "no memory for the cache of measurements");
    } catch (const std::exception& error) {
        return Error(Errc::corrupt, 0, "the cache of measurements: {}", error.what());
    }
}

}  // namespace

bool CachedCalibration::good_for(std::uint64_t sample_bytes, std::int64_t now_s) const noexcept {
    return calibration.sample_bytes >= sample_bytes / 2 && !expired(*this, now_s);
}

CalibrationCache::CalibrationCache(std::string folder, uid_t owner)
    : folder_(std::move(folder)), owner_(owner) {}

std::string CalibrationCache::path() const {
    return folder_ + "/" + kName;
}

Result<std::vector<CachedCalibration>> CalibrationCache::read(int folder) const {
    // Not to hang on a pipe that somebody put there.
    const int fd = ::openat(folder, kName, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return system_error(errno, "cannot open '{}'", path());
    const FileDescriptor file(fd, SystemCalls::real());
    struct stat status = {};
    if (::fstat(fd, &status) != 0) return system_error(errno, "cannot examine '{}'", path());
    FROSTLINE_TRY_VOID(check_owner(status, owner_, S_IWGRP | S_IWOTH, path()));
    if (!S_ISREG(status.st_mode)) {
        return Error(Errc::corrupt, 0, "'{}' is not a regular file", path());
    }
    FROSTLINE_TRY(const std::string text, read_all(fd, path()));
    return parse_calibrations(text);
}

Result<CachedCalibration> CalibrationCache::find(const CalibrationKey& key) const noexcept {
    return without_exceptions([&]() -> Result<CachedCalibration> {
        FROSTLINE_TRY(const FileDescriptor folder, open_folder(folder_, owner_));
        FROSTLINE_TRY(const auto entries, read(folder.get()));
        for (const CachedCalibration& entry : entries) {
            if (entry.key == key) return entry;
        }
        return Error(Errc::not_found, 0, "'{}' knows nothing of {}", path(), key.medium);
    });
}

Result<void> CalibrationCache::store(std::span<const CachedCalibration> entries,
                                     std::int64_t now_s) noexcept {
    return without_exceptions([&]() -> Result<void> {
        FROSTLINE_TRY_VOID(make_folders(folder_));
        FROSTLINE_TRY(const FileDescriptor folder, open_folder(folder_, owner_));
        FROSTLINE_TRY_VOID(lock(folder.get(), folder_));
        return store_locked(folder.get(), entries, now_s);
    });
}

Result<void> CalibrationCache::store_locked(int folder, std::span<const CachedCalibration> entries,
                                            std::int64_t now_s) const {
    std::vector<CachedCalibration> all(entries.begin(), entries.end());
    // What cannot be read is replaced.
    if (const auto old = read(folder)) {
        for (const CachedCalibration& entry : *old) {
            const bool replaced =
                std::any_of(entries.begin(), entries.end(),
                            [&](const auto& each) { return each.key == entry.key; });
            if (!replaced && !expired(entry, now_s)) all.push_back(entry);
        }
    }
    std::sort(all.begin(), all.end(), [](const auto& left, const auto& right) {
        return left.measured_at_s > right.measured_at_s;
    });
    if (all.size() > kMostEntries) all.resize(kMostEntries);

    const std::string new_path = folder_ + "/" + kNewName;
    // Left behind by a process that was killed here; nobody else is here now.
    if (::unlinkat(folder, kNewName, 0) != 0 && errno != ENOENT) {
        return system_error(errno, "cannot remove '{}'", new_path);
    }
    const int fd =
        ::openat(folder, kNewName, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return system_error(errno, "cannot create '{}'", new_path);
    const FileDescriptor file(fd, SystemCalls::real());
    Result<void> written = write_all(fd, format_calibrations(all), new_path);
    if (written && ::renameat(folder, kNewName, folder, kName) != 0) {
        written = system_error(errno, "cannot rename '{}'", new_path);
    }
    if (!written) (void)::unlinkat(folder, kNewName, 0);
    return written;
}

}  // namespace frostline
