// Writing a text to a file of its own: a trace, a schedule, a page.
#pragma once

#include "bindings/api.h"
#include "tiers/result.h"

#include <string>
#include <string_view>

namespace frostline {

/// Writes the text to a new file (mode 0600), or over a regular file of the same name; whole or
/// not at all. `what` is what messages call it, "trace file". Errors: invalid_argument (something
/// else has that name: a link, a device, a folder), not_found, permission, no_space, io.
FROSTLINE_API Result<void> write_whole_file(const std::string& path, std::string_view text,
                                            std::string_view what);

}  // namespace frostline
