// Where the shared library lies that programs link, for tests of what only it has.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace frostline {

/// FROSTLINE_LIBRARY, or lib/ of the build to which this test belongs; empty if it is not there.
inline std::string shared_library() {
    if (const char* const given = std::getenv("FROSTLINE_LIBRARY")) return given;
    const auto here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    for (const char* const candidate : {"../lib", "../../lib", "../bindings", "."}) {
        const auto path = here / candidate / "libfrostline.so";
        if (std::filesystem::exists(path)) return std::filesystem::canonical(path).string();
    }
    return {};
}

}  // namespace frostline
