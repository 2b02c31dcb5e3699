// A value, or why there is none: what the C++ functions of Frostline's public headers return.
//
// The public headers need the standard library and Frostline's C functions only. They are compiled
// into the program that includes them, so the library and the program need not agree on a compiler
// or a standard library. Nothing in them throws, but where the standard's own interfaces must.
#pragma once

#include "frostline/frostline.h"

#include <array>
#include <cstring>
#include <utility>
#include <variant>

namespace frostline {

/// Why a call failed. Holds its words itself: lack of memory is reported without memory. A value;
/// thread-compatible.
class Failure {
   public:
    /// `message` is copied; what is too long is cut.
    Failure(frostline_status status, const char* message) noexcept : status_(status) {
        std::strncpy(message_.data(), message, message_.size() - 1);
        message_.back() = '\0';
    }
    /// What `status`, just returned to this thread by a C function, came with.
    static Failure of(frostline_status status) noexcept {
        return Failure(status, frostline_last_error());
    }

    frostline_status status() const noexcept { return status_; }
    /// One line: what failed, and what can be done. Lives as long as this object.
    const char* message() const noexcept { return message_.data(); }

   private:
    frostline_status status_;
    std::array<char, 384> message_;
};

/// What looking at a value throws where there is a Failure instead: what() is its words, so that
/// also a program that never asked whether the call went well ends with the reason.
class NoValue : public std::bad_variant_access {
   public:
    explicit NoValue(const Failure& failure) noexcept : failure_(failure) {}
    const char* what() const noexcept override { return failure_.message(); }
    const Failure& failure() const noexcept { return failure_; }

   private:
    Failure failure_;
};

/// A T or a Failure. Looking at the one that is not there throws: NoValue where the value is
/// missing, and std::bad_variant_access, which that is, too, where there is no failure.
template <class T>
class [[nodiscard]] Outcome {
   public:
    Outcome(T value)
        : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: as std::expected
    Outcome(Failure failure) noexcept                          // NOLINT: the same
        : state_(std::in_place_index<1>, std::move(failure)) {}

    bool has_value() const noexcept { return state_.index() == 0; }
    explicit operator bool() const noexcept { return has_value(); }
    T& operator*() & { return need_value(), *std::get_if<0>(&state_); }
    const T& operator*() const& { return need_value(), *std::get_if<0>(&state_); }
    T&& operator*() && { return need_value(), std::move(*std::get_if<0>(&state_)); }
    T* operator->() { return need_value(), std::get_if<0>(&state_); }
    const T* operator->() const { return need_value(), std::get_if<0>(&state_); }
    const Failure& failure() const { return std::get<1>(state_); }

   private:
    void need_value() const {
        if (!has_value()) throw NoValue(failure());
    }

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
