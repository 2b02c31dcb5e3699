// Names and texts of the options.
#include "bindings/manager_options.h"

#include "bindings/byte_size.h"

namespace frostline {
namespace {

// The value, or an error that says which option it was meant for.
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
    return Error(Errc::invalid_argument, 0, "{}: '{}' is neither true nor false", name, value);
}

Result<std::string> path_option(std::string_view name, std::string_view value) {
    if (value.empty() || value.find('\0') != std::string_view::npos) {
        return Error(Errc::invalid_argument, 0, "{}: the path is empty or holds a zero byte", name);
    }
    return std::string(value);
}

}  // namespace

Result<void> set_option(ManagerOptions& options, std::string_view name, std::string_view value) {
    if (name == "dram") {
        FROSTLINE_TRY(options.dram_bytes, size_option(name, value));
    } else if (name == "pmem") {
        FROSTLINE_TRY(options.pmem_path, path_option(name, value));
    } else if (name == "pmem_bytes") {
        FROSTLINE_TRY(options.pmem_bytes, size_option(name, value));
    } else if (name == "swap") {
        FROSTLINE_TRY(options.swap_directory, path_option(name, value));
    } else if (name == "swap_bytes") {
        FROSTLINE_TRY(options.swap_bytes, size_option(name, value));
    } else if (name == "verify") {
        FROSTLINE_TRY(options.verify, flag_option(name, value));
    } else if (name == "calibrate") {
        FROSTLINE_TRY(options.calibrate, flag_option(name, value));
    } else {
        return Error(Errc::invalid_argument, 0,
                     "unknown option '{}': the options are dram, pmem, pmem_bytes, swap, "
                     "swap_bytes, verify, calibrate",
                     name);
    }
    return ok();
}

}  // namespace frostline
