// A whole file as text, for the readers of the planner's formats.
#pragma once

#include "tiers/result.h"

#include <cstddef>
#include <filesystem>
#include <string>

namespace frostline {

/// A file that is larger was not meant: a trace of a million kernels has about 60 MB.
inline constexpr std::size_t kMostTextBytes = std::size_t{1} << 30;

/// The content of the file, which may be a pipe. Errors: not_found, permission, io,
/// invalid_argument (a folder; larger than kMostTextBytes). May throw std::bad_alloc.
Result<std::string> read_text_file(const std::filesystem::path& path);

}  // namespace frostline
