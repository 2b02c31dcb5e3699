// How the C interface ends a call: with a status, and the words for it kept for the thread. No
// exception leaves it: running out of memory is a status like any other, and its message needs
// none.
#pragma once

#include "tiers/result.h"

#include "frostline/frostline.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <new>
#include <string_view>
#include <utility>

namespace frostline {

/// Keeps the error for frostline_last_error() on this thread, and returns its status.
frostline_status fail(const Error& error) noexcept;
/// The refusal of a NULL.
Error null_argument(const char* what) noexcept;

/// Runs `call`, which returns a Result, and turns what comes of it into a status.
template <class Call>
frostline_status status_of(Call&& call) noexcept {
    try {
        if (const auto result = std::forward<Call>(call)(); !result) return fail(result.error());
        return FROSTLINE_OK;
    } catch (const std::bad_alloc&) {
        return fail(Error(Errc::out_of_memory, 0, "no memory for Frostline's own structures"));
    } catch (const std::exception& error) {
        return fail(Error(Errc::io, 0, "unexpected: {}", error.what()));
    }
}

/// Options from a NULL-terminated array of name=value texts, through the set_option() of their
/// type. Errors: invalid_argument (a name without a value, or given twice; set_option()'s).
template <class Options>
Result<Options> parse_options(const char* const* texts) {
    Options parsed;
    for (const char* const* next = texts; *next != nullptr; ++next) {
        const std::string_view text(*next);
        const std::size_t equals = text.find('=');
        if (equals == std::string_view::npos) {
            return Error(Errc::invalid_argument, 0, "option '{}' is not of the form name=value",
                         text);
        }
        // Which of the two is meant, nobody can tell.
        if (std::any_of(texts, next, [&](const char* earlier) {
                return std::string_view(earlier).starts_with(text.substr(0, equals + 1));
            })) {
            return Error(Errc::invalid_argument, 0, "option '{}' is given twice: give it once",
                         text.substr(0, equals));
        }
        FROSTLINE_TRY_VOID(set_option(parsed, text.substr(0, equals), text.substr(equals + 1)));
    }
    return parsed;
}

/// Fills in as much of the caller's struct as both versions know. Errors: invalid_argument.
template <class Stats>
Result<void> copy_out(const Stats& from, Stats* to) {
    if (to == nullptr) return null_argument("stats");
    if (to->struct_size < sizeof(std::size_t)) {
        return Error(Errc::invalid_argument, 0, "stats: struct_size is not set");
    }
    const std::size_t size = to->struct_size;
    std::memcpy(to, &from, std::min(size, sizeof(Stats)));
    to->struct_size = size;
    return ok();
}

}  // namespace frostline
