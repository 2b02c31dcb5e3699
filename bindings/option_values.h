// What the values of options say, read from text: the one place for each kind of value, with errors
// that name the option.
#pragma once

#include "tiers/result.h"

#include <cstdint>
#include <string_view>

namespace frostline {

/// A number of bytes, as parse_byte_size() has them. Errors: invalid_argument.
Result<std::uint64_t> size_option(std::string_view name, std::string_view value);
/// 1, true, yes, on; 0, false, no, off. Errors: invalid_argument.
Result<bool> flag_option(std::string_view name, std::string_view value);
/// A number from 0, of what `of` says ("a GPU"). Errors: invalid_argument.
Result<int> number_option(std::string_view name, std::string_view value, std::string_view of);

}  // namespace frostline
