// What every file of exported driver functions begins with. The library hides all of its symbols
// but those that are marked here. cuda.h's own macros give the names their version suffixes.
#pragma once

#include <cuda.h>
#include <fmt/format.h>

#include "tiers/emulator/driver.h"
#include "tiers/emulator/function.h"

#define FROSTLINE_EXPORTED extern "C" __attribute__((visibility("default")))

namespace frostline::emulator {

/// Reports the misuse, and gives the error on: `return refuse("bad-size", "...", ...);`
inline CUresult refuse(std::string_view name, std::string_view details,
                       CUresult error = CUDA_ERROR_INVALID_VALUE) {
    report_misuse(name, details);
    return error;
}

/// Null pointers and the like, which a driver answers with CUDA_ERROR_INVALID_VALUE.
inline CUresult refuse_value(const Call& call, std::string_view what) {
    return refuse("bad-value", fmt::format("{}: {}", call.function, what));
}

}  // namespace frostline::emulator
