// Formatting of errors into their fixed buffers, and the mapping from errno.
#include "tiers/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace frostline {

Errc code_of_errno(int native) noexcept {
    switch (native) {
        case ENOMEM:
            return Errc::out_of_memory;
        case ENOSPC:
        case EDQUOT:
        case EFBIG:
            return Errc::no_space;
        case EACCES:
        case EPERM:
        case EROFS:
        case ELOOP:
            return Errc::permission;
        case ENOENT:
        case ENOTDIR:
            return Errc::not_found;
        case EWOULDBLOCK:
        case EBUSY:
            return Errc::busy;
        case EINVAL:
        case EISDIR:
        case ENAMETOOLONG:
            return Errc::invalid_argument;
        case ENOSYS:
        case EOPNOTSUPP:
            return Errc::unsupported;
        default:
            return Errc::io;
    }
}

void Error::write(fmt::string_view format, fmt::format_args args) noexcept {
    // The system's words have their room first: they are the cause, whatever the path's length.
    std::array<char, 64> buffer{};
    std::string_view words;
    // The GNU strerror_r needs no buffer for the known codes and never fails.
    if (native_ != 0) words = strerror_r(native_, buffer.data(), buffer.size());
    constexpr std::string_view kSeparator = ": ";
    const std::size_t words_room = words.empty() ? 0 : kSeparator.size() + words.size();
    const std::size_t room = message_.size() - 1 - std::min(message_.size() - 1, words_room);
    char* out = message_.data();
    try {
        const auto formatted = fmt::vformat_to_n(out, room, format, args);
        out += std::min(formatted.size, room);
    } catch (...) {
        // A formatter failed: keep the raw format string, which still says what was being done.
        out = std::copy_n(format.data(), std::min<std::size_t>(format.size(), room), out);
    }
    if (words_room > 0 && words_room < message_.size()) {
        out = std::copy(kSeparator.begin(), kSeparator.end(), out);
        out = std::copy(words.begin(), words.end(), out);
    }
    *out = '\0';
}

}  // namespace frostline
