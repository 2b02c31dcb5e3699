// A file that a program will write at its end is checked at its start: hours of work are not lost
// to a mistyped path.
#pragma once

#include "tiers/result.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>

namespace frostline {

/// Whether the file can be written, or made, as far as that can be told without touching it.
/// Errors: those of the system, naming the path and what is in the way.
inline Result<void> check_output_file(const std::string& path) {
    namespace fs = std::filesystem;
    std::error_code ignored;
    if (fs::is_directory(path, ignored)) {
        return Error(Errc::invalid_argument, 0, "cannot write '{}': it is a folder; name a file",
                     path);
    }
    if (::access(path.c_str(), W_OK) == 0) return ok();
    if (errno != ENOENT) return system_error(errno, "cannot write '{}'", path);
    const fs::path folder = fs::path(path).has_parent_path() ? fs::path(path).parent_path() : ".";
    if (!path.empty() && ::access(folder.c_str(), W_OK | X_OK) == 0) return ok();
    return system_error(errno, "cannot write '{}': its folder cannot be written to", path);
}

}  // namespace frostline
