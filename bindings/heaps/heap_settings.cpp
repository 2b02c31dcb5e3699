// Names and texts of a heap's options.
#include "bindings/heaps/heap_settings.h"

#include "bindings/option_values.h"

#include <algorithm>

namespace frostline {
namespace {

Result<HeapKind> kind_option(std::string_view value) {
    if (value == "host") return HeapKind::host;
    if (value == "device") return HeapKind::device;
    return Error(Errc::invalid_argument, 0, "kind: '{}' is neither host nor device", value);
}

// The default is said by leaving the option out, so that 0 is not taken for "nothing".
Result<std::uint64_t> positive_size(std::string_view name, std::string_view value) {
    FROSTLINE_TRY(const std::uint64_t size_bytes, size_option(name, value));
    if (size_bytes == 0) {
        return Error(Errc::invalid_argument, 0, "{}: '{}' is no room for a heap", name, value);
    }
    return size_bytes;
}

Result<std::vector<int>> gpus_option(std::string_view name, std::string_view value) {
    std::vector<int> gpus;
    while (true) {
        const std::size_t comma = std::min(value.find(','), value.size());
        FROSTLINE_TRY(const int gpu, number_option(name, value.substr(0, comma), "a GPU"));
        gpus.push_back(gpu);
        if (comma == value.size()) return gpus;
        value.remove_prefix(comma + 1);
    }
}

Error misplaced(std::string_view name, std::string_view where) {
    return Error(Errc::invalid_argument, 0, "{} is for {}: leave it out, or change the kind", name,
                 where);
}

}  // namespace

Result<void> set_option(HeapSettings& settings, std::string_view name, std::string_view value) {
    if (name == "kind") {
        FROSTLINE_TRY(settings.kind, kind_option(value));
    } else if (name == "name") {
        settings.name = value;
    } else if (name == "capacity") {
        FROSTLINE_TRY(settings.capacity_bytes, positive_size(name, value));
    } else if (name == "chunk") {
        FROSTLINE_TRY(settings.chunk_bytes, positive_size(name, value));
    } else if (name == "gpu") {
        FROSTLINE_TRY(settings.gpu, number_option(name, value, "a GPU"));
    } else if (name == "peers") {
        FROSTLINE_TRY(settings.peers, gpus_option(name, value));
    } else if (name == "numa_node") {
        FROSTLINE_TRY(settings.numa_node, number_option(name, value, "a NUMA node"));
    } else if (name == "pin") {
        FROSTLINE_TRY(settings.pin, flag_option(name, value));
    } else {
        return Error(Errc::invalid_argument, 0,
                     "unknown option '{}': a heap has kind, name, capacity, chunk, gpu, peers, "
                     "numa_node, pin",
                     name);
    }
    return ok();
}

Result<void> check_settings(const HeapSettings& settings) {
    if (!settings.kind) {
        return Error(Errc::invalid_argument, 0, "kind is missing: give kind=host or kind=device");
    }
    if (*settings.kind == HeapKind::device) {
        if (settings.pin) return misplaced("pin", "host memory");
        if (settings.numa_node != kNoNode) return misplaced("numa_node", "host memory");
        return ok();
    }
    if (!settings.peers.empty()) return misplaced("peers", "device memory");
    if (settings.gpu && !settings.pin) return misplaced("gpu", "device memory, or for pin");
    return ok();
}

}  // namespace frostline
