// How much memory of each GPU PyTorch may have, and in which pieces. One place parses both, whoever
// gives them: the environment, or the program.
#pragma once

#include "tiers/result.h"

#include <cstdint>

namespace frostline {

struct TorchSettings {
    std::uint64_t budget_bytes = 0;  ///< of each GPU; 0: what it has free when it is first used
    std::uint64_t chunk_bytes = std::uint64_t{2} << 20;
};

/// `settings` with what the texts say; null or empty leaves a value as it is. Sizes as in
/// parse_byte_size(). Errors: invalid_argument (whose value it is, the text, and what is allowed).
Result<TorchSettings> with_torch_texts(TorchSettings settings, const char* budget,
                                       const char* chunk) noexcept;

/// What FROSTLINE_TORCH_BUDGET and FROSTLINE_TORCH_CHUNK say. Errors: as above, and of any other
/// name that begins with FROSTLINE_TORCH_, because a misspelt budget would be none.
Result<TorchSettings> torch_settings_from_environment() noexcept;

}  // namespace frostline
