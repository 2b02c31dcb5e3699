// JSON that knows where it stands: each value has the line on which it ends its first token, so
// that what is wrong with its meaning can be told with its place, too.
//
// Rule: a tree is at most kMostDepth deep, and no object has a member twice.
#pragma once

#include "tiers/result.h"

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace frostline {

struct LinedJson {
    static constexpr std::size_t kMostDepth = 32;

    using List = std::vector<LinedJson>;
    /// In the order of the text.
    using Object = std::vector<std::pair<std::string, LinedJson>>;

    /// Whole numbers that are not negative are std::uint64_t, all others double; null is
    /// std::monostate.
    std::variant<std::monostate, bool, std::uint64_t, double, std::string, List, Object> value;
    std::size_t line = 0;

    /// Null where this is no object or has no such member.
    const LinedJson* member(std::string_view name) const noexcept;
};

/// Errors, which begin with `name` and the line: invalid_argument. May throw std::bad_alloc.
Result<LinedJson> parse_lined_json(std::string_view text, std::string_view name);

}  // namespace frostline
