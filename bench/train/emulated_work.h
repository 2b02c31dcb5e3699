// What ran on an emulated device, and when: the emulator keeps it, and tells whoever asks by name.
#pragma once

#include "tiers/emulator/emulator.h"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace frostline::train {

struct EmulatedWork {
    /// In the order in which they ended; the newest 100,000 of the process.
    std::vector<frostline_emulator_operation> operations;
    std::size_t misuses = 0;  ///< calls and accesses that the emulator has reported so far
};

/// Of the emulator that this process has loaded as `library`; nothing if that is no emulator, or
/// not loaded. Thread-safe.
std::optional<EmulatedWork> emulated_work(const std::string& library);

}  // namespace frostline::train
