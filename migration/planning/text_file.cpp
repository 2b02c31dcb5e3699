// Read to its end whatever its size says: pipes and files of /proc say none.
#include "migration/planning/text_file.h"

#include "migration/planning/text_lines.h"
#include "tiers/file_descriptor.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace frostline {

Result<std::string> read_text_file(const std::filesystem::path& path) {
    constexpr std::size_t kFirstBytes = std::size_t{1} << 16;
    const std::string name = shown_file(path.native());
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return system_error(errno, "{}: cannot be opened", name);
    const FileDescriptor file(fd, SystemCalls::real());
    std::string text;
    std::size_t filled = 0;
    while (true) {
        if (filled > kMostTextBytes) {
            return Error(Errc::invalid_argument, 0, "{}: is larger than {} MiB; is it a text?",
                         name, kMostTextBytes >> 20);
        }
        if (filled == text.size()) text.resize(std::max(filled * 2, kFirstBytes));
        const ssize_t got = ::read(fd, text.data() + filled, text.size() - filled);
        if (got < 0 && errno != EINTR) return system_error(errno, "{}: cannot be read", name);
        filled += static_cast<std::size_t>(std::max<ssize_t>(got, 0));
        if (got == 0) break;
    }
    text.resize(filled);
    return text;
}

}  // namespace frostline
