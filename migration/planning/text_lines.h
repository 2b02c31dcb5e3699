// A text that consists of lines of words, as traces and schedules do, taken apart word by word.
//
// Rule: nothing is taken from a line that does not end: a text that was cut is told as one, and is
// not mistaken for a shorter one with other numbers.
#pragma once

#include "tiers/result.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace frostline {

/// Whether other readers of the formats, too, take this for one word: printable ASCII, no space.
bool is_plain_word(std::string_view text) noexcept;

/// Text of unknown origin, fit for a message: in quotes, short, no byte that is not printable.
/// May throw std::bad_alloc.
std::string shown(std::string_view text);

/// The name of a file, or what stands for it, fit to begin a message with: at most 120 bytes, of
/// which the last ones are kept. May throw std::bad_alloc.
std::string shown_file(std::string_view name);

/// Words are runs of bytes between spaces and tabs; lines end with LF or CR LF. Blank lines and
/// those whose first word begins with `#` are passed over. Not thread-safe; the text must outlive
/// it. Functions that return a Result may throw std::bad_alloc while they make an error.
class TextLines {
   public:
    TextLines(std::string_view text, std::string_view name)
        : rest_(text), name_(shown_file(name)) {}

    /// The first line: `format` and nothing else. Errors: invalid_argument.
    Result<void> expect_format(std::string_view format);

    /// Goes on to the next line; false at the end. Errors: invalid_argument (the line before was
    /// not used up, or this one is cut).
    Result<bool> next();

    /// The line's next word. Errors: invalid_argument, naming `what` is missing.
    Result<std::string_view> word(const char* what) {
        if (const std::string_view taken = take(); !taken.empty()) return taken;
        return missing(what);
    }
    /// The line's next word, as a decimal number from `least` to `most`. Errors: invalid_argument,
    /// naming `what` is wrong.
    Result<std::uint64_t> number(const char* what, std::uint64_t least, std::uint64_t most);
    /// `word`, which is a part of this line, as a number of that kind.
    Result<std::uint64_t> number_in(std::string_view word, const char* what, std::uint64_t least,
                                    std::uint64_t most) const;

    /// An error that begins with file and line.
    template <class... Args>
    Error error(fmt::format_string<Args...> format, Args&&... args) const {
        return Error(Errc::invalid_argument, 0, "{}:{}: {}", name_, line_,
                     fmt::format(format, std::forward<Args>(args)...));
    }
    /// The same, of what somebody else found wrong with the line.
    Error error_of(const Error& found) const {
        return Error(found.code(), found.native(), "{}:{}: {}", name_, line_, found.message());
    }

   private:
    Result<std::string_view> cut_line();
    std::string_view take() noexcept;
    Error missing(const char* what) const;

    std::string_view rest_;     // what comes after this line
    std::string_view in_line_;  // what is left of this line
    std::string name_;
    std::size_t line_ = 0;
};

}  // namespace frostline
