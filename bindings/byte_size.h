// Sizes as people write them: "256MiB", "1.5GiB", "4096".
#pragma once

#include "bindings/api.h"
#include "tiers/result.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace frostline {

/// A number of bytes. Units: B, and KiB, MiB, GiB, TiB (or K, M, G, T) in powers of 1024, and KB,
/// MB, GB, TB in powers of 1000; any case; no unit means bytes. Fractions are allowed with a unit.
/// Errors: invalid_argument, naming the text and the valid units.
FROSTLINE_API Result<std::uint64_t> parse_byte_size(std::string_view text);

/// The size in the largest binary unit that leaves at least 1, with one decimal: "1.5 GiB".
FROSTLINE_API std::string format_byte_size(std::uint64_t size_bytes);

}  // namespace frostline
