// What `frostline info` found out, before it is JSON or text.
#pragma once

#include "bindings/gpu_info.h"
#include "bindings/machine_info.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace frostline::cli {

struct InfoFacts {
    long cpus = 0;
    std::uint64_t memory_bytes = 0;
    std::uint64_t memory_available_bytes = 0;
    std::optional<GpuInfo> gpus;
    std::string gpus_absent_because;
    MachineInfo machine;
};

/// The format is described in bindings/README.md.
nlohmann::ordered_json info_json(const InfoFacts& facts);

void print_info(const InfoFacts& facts);

/// As 12040 is CUDA 12.4.
std::string cuda_version_text(int version);

/// "2026-11-30T21:53:40Z".
std::string utc_text(std::int64_t seconds_since_1970);

}  // namespace frostline::cli
