// An Error is a plain value that owns everything it says: building, copying and reading one never
// allocates, so that running out of memory can be reported like any other failure.
#pragma once

#include <fmt/core.h>

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

namespace frostline {

/// What kind of failure it is: what a caller can act on. The numeric values are part of the C API.
enum class Errc : std::uint8_t {
    invalid_argument = 1,  ///< the caller's input cannot be used; the message says what to do
    out_of_memory = 2,     ///< the machine has no memory left for Frostline's own structures
    no_space = 3,          ///< a tier's budget or medium is full
    closed = 4,       ///< the tier takes no new data (it failed before), or the context is closed
    not_found = 5,    ///< no such tensor (never stored, or dropped), or no such file
    busy = 6,         ///< pinned, or in use by another process
    io = 7,           ///< the medium or the operating system failed
    permission = 8,   ///< the operating system refused access
    unsupported = 9,  ///< this machine or this build cannot do it
    corrupt = 10,     ///< the bytes that came back are not those that left
    cancelled = 11,   ///< given up on request
};

/// The code's own name, for logs and tests.
constexpr std::string_view name(Errc code) noexcept {
    switch (code) {
        case Errc::invalid_argument:
            return "invalid_argument";
        case Errc::out_of_memory:
            return "out_of_memory";
        case Errc::no_space:
            return "no_space";
        case Errc::closed:
            return "closed";
        case Errc::not_found:
            return "not_found";
        case Errc::busy:
            return "busy";
        case Errc::io:
            return "io";
        case Errc::permission:
            return "permission";
        case Errc::unsupported:
            return "unsupported";
        case Errc::corrupt:
            return "corrupt";
        case Errc::cancelled:
            return "cancelled";
    }
    return "unknown";
}

/// A failure: code, native code (errno; 0 if none), and one line that says what was being done, to
/// what, and what can be done about it. Trivially copyable; thread-compatible.
class Error {
   public:
    static constexpr std::size_t kMaxMessage = 384;

    /// Formats the message into the object's own buffer; what does not fit is cut. With `native`
    /// other than 0 the operating system's words for it are appended, and never cut.
    template <class... Args>
    Error(Errc code, int native, fmt::format_string<Args...> format, Args&&... args) noexcept
        : code_(code), native_(native) {
        write(format, fmt::make_format_args(args...));
    }

    Errc code() const noexcept { return code_; }
    int native() const noexcept { return native_; }
    /// NUL-terminated; lives as long as the object.
    const char* message() const noexcept { return message_.data(); }

   private:
    void write(fmt::string_view format, fmt::format_args args) noexcept;

    Errc code_;
    int native_;
    std::array<char, kMaxMessage> message_;
};

/// The error for a failed system call: maps errno to a code (ENOSPC to no_space, EACCES to
/// permission, and so on) and appends its words.
template <class... Args>
Error system_error(int native, fmt::format_string<Args...> format, Args&&... args) noexcept;

/// The code that stands for an errno value.
Errc code_of_errno(int native) noexcept;

template <class... Args>
Error system_error(int native, fmt::format_string<Args...> format, Args&&... args) noexcept {
    return Error(code_of_errno(native), native, format, std::forward<Args>(args)...);
}

}  // namespace frostline
