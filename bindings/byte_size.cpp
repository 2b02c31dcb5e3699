// Parsing rejects whatever it does not understand whole: a budget that was misread is worse than
// one that was refused.
#include "bindings/byte_size.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>

namespace frostline {
namespace {

struct Unit {
    std::string_view name;
    std::uint64_t bytes;
};

// Beyond this no file and no memory goes.
constexpr std::uint64_t kMostBytes = std::numeric_limits<std::int64_t>::max();

constexpr std::uint64_t kKi = 1024;
constexpr std::array<Unit, 14> kUnits{{
    {"", 1},
    {"b", 1},
    {"k", kKi},
    {"kib", kKi},
    {"kb", 1000},
    {"m", kKi* kKi},
    {"mib", kKi* kKi},
    {"mb", 1000'000},
    {"g", kKi* kKi* kKi},
    {"gib", kKi* kKi* kKi},
    {"gb", 1000'000'000},
    {"t", kKi* kKi* kKi* kKi},
    {"tib", kKi* kKi* kKi* kKi},
    {"tb", 1000'000'000'000},
}};

Error bad_size(std::string_view text) {
    return Error(Errc::invalid_argument, 0,
                 "'{}' is not a size: write a number and a unit such as 512MiB, 1.5GiB or 4096",
                 text);
}

}  // namespace

Result<std::uint64_t> parse_byte_size(std::string_view text) {
    const char* const last = text.data() + text.size();
    // Whole bytes exactly: a double would round what is beyond 2^53.
    std::uint64_t whole = 0;
    if (const auto [end, error] = std::from_chars(text.data(), last, whole);
        error == std::errc() && end == last) {
        return whole <= kMostBytes ? Result<std::uint64_t>(whole) : bad_size(text);
    }
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), last, number, std::chars_format::fixed);
    if (error != std::errc() || !(number >= 0)) return bad_size(text);
    std::string unit;
    for (const char* at = end; at != last; ++at) {
        if (*at == ' ' && unit.empty()) continue;
        unit += static_cast<char>(std::tolower(static_cast<unsigned char>(*at)));
    }
    for (const Unit& each : kUnits) {
        if (each.name != unit) continue;
        const double bytes = number * static_cast<double>(each.bytes);
        // The largest double below 2^63 is far enough from it; and half a byte is a mistake.
        if (bytes >= static_cast<double>(kMostBytes)) return bad_size(text);
        if (each.bytes == 1 && number != std::floor(number)) return bad_size(text);
        return static_cast<std::uint64_t>(bytes);
    }
    return bad_size(text);
}

std::string format_byte_size(std::uint64_t size_bytes) {
    constexpr std::array<const char*, 5> kNames{"B", "KiB", "MiB", "GiB", "TiB"};
    auto value = static_cast<double>(size_bytes);
    std::size_t unit = 0;
    for (; value >= 1024 && unit + 1 < kNames.size(); ++unit) value /= 1024;
    return unit == 0 ? fmt::format("{} B", size_bytes)
                     : fmt::format("{:.1f} {}", value, kNames[unit]);
}

}  // namespace frostline
