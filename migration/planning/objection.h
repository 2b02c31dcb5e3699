// What the rules say against an act of a schedule.
#pragma once

#include <optional>
#include <string>

namespace frostline {

/// Why an act is illegal, in one line and without its time, which who replays the act knows; none
/// where it is legal.
using Objection = std::optional<std::string>;

}  // namespace frostline
