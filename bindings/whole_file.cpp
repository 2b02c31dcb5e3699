// Written beside its final name and renamed, so that nobody ever reads half a file.
#include "bindings/whole_file.h"

#include "tiers/file_descriptor.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace frostline {

Result<void> write_whole_file(const std::string& path, std::string_view text,
                              std::string_view what) {
    const SystemCalls& calls = SystemCalls::real();
    // What is put in place would replace a device, a pipe or a link, and not be written to it.
    struct stat there {};
    if (lstat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode)) {
        return Error(Errc::invalid_argument, 0,
                     "{} '{}': is not a regular file; name another place", what, path);
    }
    std::string beside = path + ".XXXXXX";
    const int fd = calls.mkostemp(beside.data(), O_CLOEXEC);
    if (fd < 0) return system_error(errno, "{} '{}': cannot be created", what, path);
    const FileDescriptor file(fd, calls);
    std::size_t done = 0;
    while (done < text.size()) {
        const ssize_t wrote =
            calls.pwrite(fd, text.data() + done, text.size() - done, static_cast<off_t>(done));
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) {
            const int error = wrote < 0 ? errno : EIO;
            (void)calls.unlink(beside.c_str());
            return system_error(error, "{} '{}': writing failed", what, path);
        }
        done += static_cast<std::size_t>(wrote);
    }
    // Before the rename: some file systems report a failed write only now.
    if (fsync(fd) != 0) {
        const int error = errno;
        (void)calls.unlink(beside.c_str());
        return system_error(error, "{} '{}': writing failed", what, path);
    }
    if (std::rename(beside.c_str(), path.c_str()) != 0) {
        const int error = errno;
        (void)calls.unlink(beside.c_str());
        return system_error(error, "{} '{}': cannot be put in place", what, path);
    }
    return ok();
}

}  // namespace frostline
