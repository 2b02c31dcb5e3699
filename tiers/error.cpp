// Formatting of errors into their fixed buffers, and the mapping from errno.
#include "tiers/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

namespace frostline {

Errc code_of_errno(int native) noexcept {
    switch (native) {
        case ENOMEM: return Errc::out_of_memory;
        case ENOSPC:
        case EDQUOT:
        case EFBIG: return Errc::no_space;
        case EACCES:
        case EPERM:
        case EROFS:
        case ELOOP: return Errc::permission;
        case ENOENT:
        case ENOTDIR: return Errc::not_found;
        case EWOULDBLOCK:
        case EBUSY: return Errc::busy;
        case EINVAL:
        case EISDIR:
        case ENAMETOOLONG: return Errc::invalid_argument;
        case ENOSYS:
        case EOPNOTSUPP: return Errc::unsupported;
        default: return Errc::io;
    }
}

void Error::write(fmt::string_view format, fmt::format_args args) noexcept {
    char* const end = message_.data() + message_.size() - 1;
    char* out = message_.data();
    try {
        out = fmt::vformat_to_n(out, static_cast<std::size_t>(end - out), format, args).out;
    } catch (...) {
        // A formatter failed: keep the raw format string, which still says what was being done.
        out = std::copy_n(format.data(), std::min<std::size_t>(format.size(), kMaxMessage / 2), out);
    }
    if (native_ != 0) {
        // The GNU strerror_r needs no buffer for the known codes and never fails.
        std::array<char, 64> buffer{};
        const char* words = strerror_r(native_, buffer.data(), buffer.size());
        for (const char* part : {": ", words}) {
            const auto room = static_cast<std::size_t>(end - out);
            out = std::copy_n(part, std::min(std::strlen(part), room), out);
        }
    }
    *out = '\0';
}

}  // namespace frostline
