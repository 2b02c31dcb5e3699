// What the emulated machine is like. Settings are either all valid or refused with one line that
// names the first that is not; a wrong value is never replaced by a default.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace frostline::emulator {

constexpr unsigned kMaxDevices = 16;

struct PlantedFault {
    std::string function;  ///< with or without a version suffix
    unsigned nth;          ///< 1: the first call
    int result;            ///< a CUresult
};

struct Settings {
    unsigned devices = 1;
    std::uint64_t memory_bytes = std::uint64_t{1} << 30;  ///< of each device
    std::uint64_t h2d_bytes_per_s = 0;                    ///< 0: as fast as the host copies
    std::uint64_t d2h_bytes_per_s = 0;
    std::uint64_t d2d_bytes_per_s = 0;
    std::uint64_t latency_us = 0;  ///< of each copy and fill
    double kernel_speed = 1.0;     ///< 0.5: every kernel takes twice as long as on the host
    std::uint64_t seed = 1;
    std::uint64_t jitter_us = 0;  ///< the most that an operation is delayed at random
    std::uint64_t granularity_bytes = 2 << 20;
    std::vector<PlantedFault> faults;
    bool abort_at_misuse = false;
    bool report_leaks = true;
    int version = 13000;                         ///< what cuDriverGetVersion says
    bool peer = true;                            ///< devices can reach each other's memory
    std::uint64_t registration_limit_bytes = 0;  ///< the largest one; 0: none
};

/// Either settings or one line that says which value is wrong and why.
using ParsedSettings = std::variant<Settings, std::string>;

/// The environment's FROSTLINE_EMULATOR_..., overridden by "name=value,..." of `overrides`.
ParsedSettings parse_settings(std::string_view overrides);

}  // namespace frostline::emulator
