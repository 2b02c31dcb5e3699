// Errors as Python exceptions: one class for each code that a program acts on, all of them Error.
#pragma once

#include "tiers/result.h"

#include <pybind11/pybind11.h>

#include <utility>

namespace frostline::python {

/// Adds Error (a RuntimeError, with the attribute `code`), InvalidArgument (also a ValueError) and
/// NoSpace to the module.
void define_exceptions(pybind11::module_& module);

/// Raises `error`. Works with and without the interpreter lock.
[[noreturn]] void raise(const Error& error);

/// The value of a result, or an exception.
template <class T>
T value_or_throw(Result<T> result) {
    if (!result) raise(result.error());
    if constexpr (!std::is_void_v<T>) return std::move(*result);
}

}  // namespace frostline::python
