// A value, or why there is none: what the C++ functions of Frostline's public headers return.
//
// The public headers need the standard library and Frostline's C functions only. They are compiled
// into the program that includes them, so the library and the program need not agree on a compiler
// or a standard library. Nothing in them throws, but where the standard's own interfaces must.
#pragma once

#include "frostline/frostline.h"

#include <string>
#include <utility>
#include <variant>

namespace frostline {

/// Why a call failed. A value; thread-compatible.
class Failure {
   public:
    /// What `status`, just returned to this thread by a C function, came with.
    static Failure of(frostline_status status) noexcept {
        try {
            return Failure(status, frostline_last_error());
        } catch (...) {  // no memory for the words
            return Failure(status, {});
        }
    }

    frostline_status status() const noexcept { return status_; }
    /// One line: what failed, and what can be done. Lives as long as this object.
    const char* message() const noexcept { return message_.c_str(); }

   private:
    Failure(frostline_status status, std::string message) noexcept
        : status_(status), message_(std::move(message)) {}

    frostline_status status_;
    std::string message_;
};

/// A T or a Failure. Looking at the one that is not there throws std::bad_variant_access.
template <class T>
class [[nodiscard]] Outcome {
   public:
    Outcome(T value)
        : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: as std::expected
    Outcome(Failure failure) noexcept                          // NOLINT: the same
        : state_(std::in_place_index<1>, std::move(failure)) {}

    bool has_value() const noexcept { return state_.index() == 0; }
    explicit operator bool() const noexcept { return has_value(); }
    T& operator*() & { return std::get<0>(state_); }
    const T& operator*() const& { return std::get<0>(state_); }
    T&& operator*() && { return std::get<0>(std::move(state_)); }
    T* operator->() { return &std::get<0>(state_); }
    const T* operator->() const { return &std::get<0>(state_); }
    const Failure& failure() const { return std::get<1>(state_); }

   private:
    std::variant<T, Failure> state_;
};

/// What a call without a value came to.
template <>
class [[nodiscard]] Outcome<void> : public Outcome<std::monostate> {
   public:
    Outcome() : Outcome<std::monostate>(std::monostate()) {}
    Outcome(Failure failure) noexcept  // NOLINT: as above
        : Outcome<std::monostate>(std::move(failure)) {}
    /// Of a C function's status.
    static Outcome of(frostline_status status) noexcept {
        return status == FROSTLINE_OK ? Outcome() : Outcome(Failure::of(status));
    }
};

}  // namespace frostline
