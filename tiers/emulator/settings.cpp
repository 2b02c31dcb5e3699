// One table of settings serves the environment and the control interface; whatever cannot be read
// whole, or is out of its bounds, is refused.
#include "tiers/emulator/settings.h"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <utility>

namespace frostline::emulator {
namespace {

constexpr std::string_view kPrefix = "FROSTLINE_EMULATOR_";

std::optional<std::uint64_t> parse_number(std::string_view text) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    return value;
}

std::optional<std::uint64_t> parse_bytes(std::string_view text) {
    constexpr std::array<std::pair<std::string_view, unsigned>, 3> kSuffixes{
        {{"KiB", 10}, {"MiB", 20}, {"GiB", 30}}};
    unsigned shift = 0;
    for (const auto& [suffix, bits] : kSuffixes) {
        if (!text.ends_with(suffix)) continue;
        text.remove_suffix(suffix.size());
        shift = bits;
    }
    const auto value = parse_number(text);
    if (!value || *value > (~std::uint64_t{0} >> shift)) return std::nullopt;
    return *value << shift;
}

std::optional<bool> parse_switch(std::string_view text) {
    if (text == "0" || text == "1") return text == "1";
    return std::nullopt;
}

std::optional<double> parse_speed(std::string_view text) {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    if (!std::isfinite(value) || value <= 0 || value > 1) return std::nullopt;
    return value;
}

bool set_bytes(std::string_view text, std::uint64_t& field, std::uint64_t least) {
    const auto value = parse_bytes(text);
    if (value && *value >= least) field = *value;
    return value && *value >= least;
}

bool set_number(std::string_view text, std::uint64_t& field, std::uint64_t most) {
    const auto value = parse_number(text);
    if (value && *value <= most) field = *value;
    return value && *value <= most;
}

template <class Value, class Field>
bool set_parsed(const std::optional<Value>& value, Field& field) {
    if (value) field = static_cast<Field>(*value);
    return value.has_value();
}

/// "FUNCTION:NTH:RESULT,..."
bool set_faults(std::string_view text, Settings& settings) {
    settings.faults.clear();
    while (!text.empty()) {
        const std::string_view item = text.substr(0, text.find(','));
        text.remove_prefix(std::min(item.size() + 1, text.size()));
        const std::size_t first = item.find(':');
        const std::size_t last = item.rfind(':');
        if (first == std::string_view::npos || first == 0 || first == last) return false;
        const auto nth = parse_number(item.substr(first + 1, last - first - 1));
        const auto result = parse_number(item.substr(last + 1));
        if (!nth || *nth == 0 || *nth > 1'000'000'000) return false;
        // CUDA_SUCCESS is no fault: the call would have no effect, and say that it had.
        if (!result || *result == 0 || *result > 100'000) return false;
        settings.faults.push_back({std::string(item.substr(0, first)), static_cast<unsigned>(*nth),
                                   static_cast<int>(*result)});
    }
    return true;
}

bool set_granularity(std::string_view text, Settings& settings) {
    const auto value = parse_bytes(text);
    if (!value || *value < 4096 || (*value & (*value - 1)) != 0) return false;
    settings.granularity_bytes = *value;
    return true;
}

bool set_devices(std::string_view text, Settings& settings) {
    const auto value = parse_number(text);
    if (!value || *value > kMaxDevices) return false;
    settings.devices = static_cast<unsigned>(*value);
    return true;
}

// The least has virtual memory management; the most is any that could be published.
bool set_version(std::string_view text, Settings& settings) {
    const auto value = parse_number(text);
    if (!value || *value < 10020 || *value > 99990) return false;
    settings.version = static_cast<int>(*value);
    return true;
}

constexpr std::uint64_t kMostMicroseconds = 60'000'000;

struct Setting {
    std::string_view name;
    std::string_view expected;
    bool (*set)(std::string_view, Settings&);
};

using Text = std::string_view;
constexpr std::string_view kBytesExpected = "a number of bytes, such as 64MiB";

constexpr std::array<Setting, 16> kSettings{{
    {"devices", "0 to 16", set_devices},
    {"memory", "at least 1MiB",
     [](Text t, Settings& s) { return set_bytes(t, s.memory_bytes, 1 << 20); }},
    {"h2d_bytes_per_s", kBytesExpected,
     [](Text t, Settings& s) { return set_bytes(t, s.h2d_bytes_per_s, 0); }},
    {"d2h_bytes_per_s", kBytesExpected,
     [](Text t, Settings& s) { return set_bytes(t, s.d2h_bytes_per_s, 0); }},
    {"d2d_bytes_per_s", kBytesExpected,
     [](Text t, Settings& s) { return set_bytes(t, s.d2d_bytes_per_s, 0); }},
    {"latency_us", "microseconds, at most a minute",
     [](Text t, Settings& s) { return set_number(t, s.latency_us, kMostMicroseconds); }},
    {"kernel_speed", "more than 0, at most 1",
     [](Text t, Settings& s) { return set_parsed(parse_speed(t), s.kernel_speed); }},
    {"seed", "a whole number",
     [](Text t, Settings& s) { return set_parsed(parse_number(t), s.seed); }},
    {"jitter_us", "microseconds, at most a minute",
     [](Text t, Settings& s) { return set_number(t, s.jitter_us, kMostMicroseconds); }},
    {"granularity", "a power of two, at least 4KiB", set_granularity},
    {"faults", "FUNCTION:NTH:RESULT,... with a result that is not 0", set_faults},
    {"abort", "0 or 1",
     [](Text t, Settings& s) { return set_parsed(parse_switch(t), s.abort_at_misuse); }},
    {"leaks", "0 or 1",
     [](Text t, Settings& s) { return set_parsed(parse_switch(t), s.report_leaks); }},
    {"version", "1000 times CUDA's major and 10 times its minor version, from 10020 on",
     set_version},
    {"peer", "0 or 1", [](Text t, Settings& s) { return set_parsed(parse_switch(t), s.peer); }},
    {"registration_limit", kBytesExpected,
     [](Text t, Settings& s) { return set_bytes(t, s.registration_limit_bytes, 0); }},
}};

std::string wrong(std::string_view name, std::string_view value, std::string_view expected) {
    return fmt::format("{} is '{}': {}", name, value, expected);
}

std::string environment_name(std::string_view name) {
    std::string result(kPrefix);
    for (const char c : name) {
        result += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    }
    return result;
}

/// How many letters differ, at least: insertions, removals and replacements.
std::size_t distance(std::string_view from, std::string_view to) {
    std::vector<std::size_t> row(to.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 0; i < from.size(); ++i) {
        std::size_t diagonal = std::exchange(row[0], i + 1);
        for (std::size_t j = 0; j < to.size(); ++j) {
            const std::size_t replaced = diagonal + (from[i] == to[j] ? 0 : 1);
            diagonal = row[j + 1];
            row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
        }
    }
    return row.back();
}

/// Empty, or that the environment names no setting there is, and which one is nearest.
std::string unknown_in_environment() {
    for (const char* const* each = environ; *each != nullptr; ++each) {
        const std::string_view entry(*each);
        const std::string_view name = entry.substr(0, entry.find('='));
        if (!name.starts_with(kPrefix)) continue;
        std::string nearest;
        for (const Setting& setting : kSettings) {
            std::string known = environment_name(setting.name);
            if (nearest.empty() || distance(name, known) < distance(name, nearest)) {
                nearest = std::move(known);
            }
        }
        if (nearest != name) {
            return fmt::format("{} is no setting: did you mean {}?", name, nearest);
        }
    }
    return {};
}

/// Empty, or what is wrong.
std::string apply(std::string_view name, std::string_view value, Settings& settings) {
    const auto* const setting =
        std::find_if(kSettings.begin(), kSettings.end(),
                     [&](const Setting& candidate) { return candidate.name == name; });
    if (setting == kSettings.end()) return fmt::format("there is no setting '{}'", name);
    if (setting->set(value, settings)) return {};
    return wrong(name, value, setting->expected);
}

std::string apply_overrides(std::string_view text, Settings& settings) {
    while (!text.empty()) {
        const std::size_t equals = text.find('=');
        if (equals == std::string_view::npos) return fmt::format("'{}' is not name=value", text);
        const std::string_view name = text.substr(0, equals);
        // The faults have commas of their own, and so a value ends only where the next name begins.
        std::size_t end = text.find(',', equals);
        while (end != std::string_view::npos) {
            const std::size_t next = text.find(',', end + 1);
            if (text.substr(end + 1, next - end - 1).find('=') != std::string_view::npos) break;
            if (name != "faults") break;
            end = next;
        }
        const std::string_view value = text.substr(equals + 1, end - equals - 1);
        if (std::string error = apply(name, value, settings); !error.empty()) return error;
        text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    }
    return {};
}

}  // namespace

ParsedSettings parse_settings(std::string_view overrides) {
    Settings settings;
    for (const Setting& setting : kSettings) {
        const std::string name = environment_name(setting.name);
        const char* const value = std::getenv(name.c_str());
        if (value != nullptr && !setting.set(value, settings)) {
            return wrong(name, value, setting.expected);
        }
    }
    if (std::string error = unknown_in_environment(); !error.empty()) return error;
    if (std::string error = apply_overrides(overrides, settings); !error.empty()) return error;
    return settings;
}

}  // namespace frostline::emulator
