// Style and script of all pages, as the build has put them into the program.
#pragma once

#include <string_view>

namespace frostline::cli {

extern const std::string_view kPageStyle;
extern const std::string_view kPageScript;

}  // namespace frostline::cli
