// Words are views of the text: reading a line allocates nothing.
#include "migration/planning/text_lines.h"

#include <algorithm>
#include <charconv>
#include <system_error>

namespace frostline {
namespace {

constexpr bool is_space(char byte) noexcept {
    return byte == ' ' || byte == '\t';
}

constexpr bool is_printable(char byte) noexcept {
    return byte > ' ' && byte < '\x7f';
}

}  // namespace

bool is_plain_word(std::string_view text) noexcept {
    return !text.empty() && std::all_of(text.begin(), text.end(), is_printable);
}

std::string shown(std::string_view text) {
    constexpr std::size_t kMostBytes = 40;
    std::string out = "'";
    for (const char byte : text.substr(0, kMostBytes)) {
        out += is_printable(byte) || byte == ' ' ? byte : '?';
    }
    out += text.size() > kMostBytes ? "...'" : "'";
    return out;
}

std::string shown_file(std::string_view name) {
    constexpr std::size_t kMostBytes = 120;
    std::string out;
    if (name.size() > kMostBytes) {
        out = "...";
        name.remove_prefix(name.size() - kMostBytes + out.size());
    }
    // A line end in a name would make two lines of a message.
    for (const char byte : name) out += byte == '\n' || byte == '\r' ? '?' : byte;
    return out;
}

Result<void> TextLines::expect_format(std::string_view format) {
    line_ = 1;
    if (rest_.empty()) return error("the file is empty; its first line has to be '{}'", format);
    FROSTLINE_TRY(std::string_view first, cut_line());
    while (!first.empty() && is_space(first.back())) first.remove_suffix(1);
    if (first == format) return ok();
    return error("the first line is {}, not '{}'; is this another kind of file?", shown(first),
                 format);
}

Result<std::string_view> TextLines::cut_line() {
    const std::size_t end = rest_.find('\n');
    if (end == std::string_view::npos) {
        return error(
            "the last line has no line end, so the file may be cut; add one if it is whole");
    }
    std::string_view line = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    return line;
}

Result<bool> TextLines::next() {
    if (const std::string_view more = take(); !more.empty()) {
        return error("there is more than the line's kind has: {}; remove it", shown(more));
    }
    while (!rest_.empty()) {
        ++line_;
        FROSTLINE_TRY(in_line_, cut_line());
        while (!in_line_.empty() && is_space(in_line_.front())) in_line_.remove_prefix(1);
        if (!in_line_.empty() && in_line_.front() != '#') return true;
    }
    in_line_ = {};
    return false;
}

Result<std::uint64_t> TextLines::number(const char* what, std::uint64_t least, std::uint64_t most) {
    const std::string_view taken = take();
    if (taken.empty()) return missing(what);
    return number_in(taken, what, least, most);
}

Result<std::uint64_t> TextLines::number_in(std::string_view word, const char* what,
                                           std::uint64_t least, std::uint64_t most) const {
    std::uint64_t value = 0;
    const char* const end = word.data() + word.size();
    const auto [stopped, failure] = std::from_chars(word.data(), end, value);
    if (stopped == end && failure == std::errc() && value >= least && value <= most) return value;
    return error("the {} is {}, not a whole number from {} to {}", what, shown(word), least, most);
}

std::string_view TextLines::take() noexcept {
    std::size_t end = 0;
    while (end < in_line_.size() && !is_space(in_line_[end])) ++end;
    const std::string_view taken = in_line_.substr(0, end);
    while (end < in_line_.size() && is_space(in_line_[end])) ++end;
    in_line_.remove_prefix(end);
    return taken;
}

Error TextLines::missing(const char* what) const {
    return error("the line ends before the {}; see docs/formats.md", what);
}

}  // namespace frostline
