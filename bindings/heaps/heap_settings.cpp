// Names and texts of a heap's options.
#include "bindings/heaps/heap_settings.h"

#include "bindings/option_values.h"

#include <algorithm>

namespace frostline {
namespace {

Result<HeapKind> kind_option(std::string_view value) {
    if (value == "host") return HeapKind::host;
    if (value == "device") return HeapKind::device;
    return Error(Errc::invalid_argument, 0,
                 "kind: '{}' is neither host nor device: give one of these", value);
}

// The default is said by leaving the option out, so that 0 is not taken for "nothing".
Result<std::uint64_t> positive_size(std::string_view name, std::string_view value) {
    FROSTLINE_TRY(const std::uint64_t size_bytes, size_option(name, value));
    if (size_bytes == 0) {
        return Error(
            Errc::invalid_argument, 0,
            "{}: '{}' is no room for a heap: give a size such as 2MiB, or leave it out for "
            "the default",
            name, value);
    }
    return size_bytes;
}

// Every message begins with it, and messages are one line.
Result<std::string> heap_name(std::string_view value) {
    constexpr std::size_t kMostBytes = 64;
    const auto control = std::find_if(value.begin(), value.end(), [](char c) {
        return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    });
    if (control != value.end()) {
        return Error(Errc::invalid_argument, 0,
                     "name: character {} is a control character (a newline, for example): give one "
                     "line of text",
                     control - value.begin() + 1);
    }
    if (value.empty() || value.size() > kMostBytes) {
        return Error(Errc::invalid_argument, 0,
                     "name: it has {} bytes: give from 1 to {}, or leave it out for the default",
                     value.size(), kMostBytes);
    }
    return std::string(value);
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

Result<void> check_peers(const HeapSettings& settings) {
    const int own = settings.gpu.value_or(0);
    for (auto peer = settings.peers.begin(); peer != settings.peers.end(); ++peer) {
        if (*peer == own) {
            return Error(Errc::invalid_argument, 0,
                         "peers: GPU {} is the heap's own: name only others", own);
        }
        if (std::find(settings.peers.begin(), peer, *peer) != peer) {
            return Error(Errc::invalid_argument, 0, "peers: GPU {} is named twice: once is enough",
                         *peer);
        }
    }
    return ok();
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
        FROSTLINE_TRY(settings.name, heap_name(value));
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
    } else if (name == "leaks") {
        FROSTLINE_TRY(settings.leaks, flag_option(name, value));
    } else if (name == "debug") {
        FROSTLINE_TRY(settings.debug, flag_option(name, value));
    } else if (name == "trace") {
        FROSTLINE_TRY(settings.trace, flag_option(name, value));
    } else {
        return Error(Errc::invalid_argument, 0,
                     "unknown option '{}': a heap has kind, name, capacity, chunk, gpu, peers, "
                     "numa_node, pin, leaks, debug, trace",
                     name);
    }
    return ok();
}

Result<void> check_settings(const HeapSettings& settings) {
    if (!settings.kind) {
        return Error(Errc::invalid_argument, 0, "kind is missing: give kind=host or kind=device");
    }
    if (settings.capacity_bytes != 0 && settings.capacity_bytes < settings.chunk_bytes) {
        return Error(
            Errc::invalid_argument, 0,
            "capacity: {} bytes are less than one chunk of {}: raise it, or give a smaller "
            "chunk",
            settings.capacity_bytes, settings.chunk_bytes);
    }
    if (*settings.kind == HeapKind::device) {
        if (settings.pin) return misplaced("pin", "host memory");
        if (settings.numa_node != kNoNode) return misplaced("numa_node", "host memory");
        return check_peers(settings);
    }
    if (!settings.peers.empty()) return misplaced("peers", "device memory");
    if (settings.gpu && !settings.pin) return misplaced("gpu", "device memory, or for pin");
    return ok();
}

}  // namespace frostline
