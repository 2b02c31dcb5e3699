// Result<T>: a value or an Error. Every fallible function of Frostline returns one; nothing throws.
#pragma once

#include "tiers/error.h"

#include <tl/expected.hpp>

#include <utility>

namespace frostline {

/// A value or an Error. The interface is that of C++23's std::expected: has_value(), operator*,
/// error(). Unlike its base it may not be ignored, and an Error converts to it without ceremony.
template <class T>
class [[nodiscard]] Result : public tl::expected<T, Error> {
   public:
    using tl::expected<T, Error>::expected;
    Result(const Error& error) : tl::expected<T, Error>(tl::make_unexpected(error)) {}  // NOLINT
};

/// The value of a Result<void> that succeeded. Not `{}`, which would first fill the room for an
/// error with zeros.
inline Result<void> ok() noexcept {
    Result<void> done;
    return done;
}

}  // namespace frostline

#define FROSTLINE_CONCAT_INNER(a, b) a##b
#define FROSTLINE_CONCAT(a, b) FROSTLINE_CONCAT_INNER(a, b)
#define FROSTLINE_TRY_INNER(result, declaration, expression) \
    auto&& result = (expression);                            \
    if (!(result).has_value()) return (result).error();      \
    declaration = *std::move(result)

/// FROSTLINE_TRY(auto x, f()): x is f()'s value, or the enclosing function returns f()'s error.
#define FROSTLINE_TRY(declaration, expression) \
    FROSTLINE_TRY_INNER(FROSTLINE_CONCAT(try_result_, __LINE__), declaration, expression)

/// FROSTLINE_TRY_VOID(f()): go on if f() succeeded, or return its error.
#define FROSTLINE_TRY_VOID(expression)                                                            \
    do {                                                                                          \
        if (auto&& try_result = (expression); !try_result.has_value()) return try_result.error(); \
    } while (false)
