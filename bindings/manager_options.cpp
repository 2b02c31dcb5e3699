// Names and texts of the options.
#include "bindings/manager_options.h"

#include "bindings/option_values.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace frostline {
namespace {

Result<std::string> path_option(std::string_view name, std::string_view value) {
    if (value.empty() || value.find('\0') != std::string_view::npos) {
        return Error(Errc::invalid_argument, 0, "{}: the path is empty or holds a zero byte", name);
    }
    return std::string(value);
}

// As in PATH.
Result<std::vector<std::string>> places_option(std::string_view name, std::string_view value) {
    std::vector<std::string> places;
    while (true) {
        const std::size_t colon = std::min(value.find(':'), value.size());
        FROSTLINE_TRY(std::string place, path_option(name, value.substr(0, colon)));
        places.push_back(std::move(place));
        if (colon == value.size()) return places;
        value.remove_prefix(colon + 1);
    }
}

Result<int> node_option(std::string_view name, std::string_view value) {
    return number_option(name, value, "a NUMA node");
}

Result<NumaPlacement> numa_option(std::string_view name, std::string_view value) {
    using enum NumaPlacement::Mode;
    if (value == "none") return NumaPlacement{};
    const std::size_t colon = value.find(':');
    for (const auto& [word, mode] : {std::pair<std::string_view, NumaPlacement::Mode>{"bind", bind},
                                     {"preferred", preferred},
                                     {"interleave", interleave}}) {
        if (colon == std::string_view::npos || value.substr(0, colon) != word) continue;
        NumaPlacement placement{mode, {}};
        for (std::string_view rest = value.substr(colon + 1);;) {
            const std::size_t comma = std::min(rest.find(','), rest.size());
            FROSTLINE_TRY(const int node, node_option(name, rest.substr(0, comma)));
            placement.nodes.push_back(node);
            if (comma == rest.size()) return placement;
            rest.remove_prefix(comma + 1);
        }
    }
    return Error(Errc::invalid_argument, 0,
                 "{}: '{}' is none of none, bind:NODES, preferred:NODE and interleave:NODES", name,
                 value);
}

}  // namespace

Result<void> set_option(ManagerOptions& options, std::string_view name, std::string_view value) {
    if (name == "device") {
        FROSTLINE_TRY(options.device_bytes, size_option(name, value));
    } else if (name == "gpu") {
        FROSTLINE_TRY(options.gpu, number_option(name, value, "a GPU"));
    } else if (name == "dram") {
        FROSTLINE_TRY(options.dram_bytes, size_option(name, value));
    } else if (name == "pmem") {
        FROSTLINE_TRY(options.pmem_path, path_option(name, value));
    } else if (name == "pmem_bytes") {
        FROSTLINE_TRY(options.pmem_bytes, size_option(name, value));
    } else if (name == "swap") {
        FROSTLINE_TRY(options.swap_places, places_option(name, value));
    } else if (name == "swap_bytes") {
        FROSTLINE_TRY(options.swap_bytes, size_option(name, value));
    } else if (name == "swap_devices") {
        FROSTLINE_TRY(options.swap_devices, flag_option(name, value));
    } else if (name == "numa") {
        FROSTLINE_TRY(options.numa, numa_option(name, value));
    } else if (name == "far_node") {
        FROSTLINE_TRY(options.far_node, node_option(name, value));
    } else if (name == "far_bytes") {
        FROSTLINE_TRY(options.far_bytes, size_option(name, value));
    } else if (name == "pin") {
        FROSTLINE_TRY(options.pin, flag_option(name, value));
    } else if (name == "verify") {
        FROSTLINE_TRY(options.verify, flag_option(name, value));
    } else if (name == "calibrate") {
        FROSTLINE_TRY(options.calibrate, flag_option(name, value));
    } else {
        return Error(
            Errc::invalid_argument, 0,
            "unknown option '{}': the options are device, gpu, dram, pmem, pmem_bytes, swap, "
            "swap_bytes, swap_devices, numa, far_node, far_bytes, pin, verify, calibrate",
            name);
    }
    return ok();
}

}  // namespace frostline
