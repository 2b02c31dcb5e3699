// Values of options.
#include "bindings/option_values.h"

#include "bindings/byte_size.h"

#include <charconv>
#include <system_error>

namespace frostline {

Result<std::uint64_t> size_option(std::string_view name, std::string_view value) {
    auto bytes = parse_byte_size(value);
    if (!bytes) return Error(bytes.error().code(), 0, "{}: {}", name, bytes.error().message());
    return bytes;
}

Result<bool> flag_option(std::string_view name, std::string_view value) {
    for (const std::string_view yes : {"1", "true", "yes", "on"}) {
        if (value == yes) return true;
    }
    for (const std::string_view no : {"0", "false", "no", "off"}) {
        if (value == no) return false;
    }
    return Error(Errc::invalid_argument, 0, "{}: '{}' is neither true nor false: give 1 or 0", name,
                 value);
}

Result<int> number_option(std::string_view name, std::string_view value, std::string_view of) {
    int number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() || number < 0) {
        return Error(Errc::invalid_argument, 0,
                     "{}: '{}' is not the number of {}: give a whole number from 0", name, value,
                     of);
    }
    return number;
}

}  // namespace frostline
