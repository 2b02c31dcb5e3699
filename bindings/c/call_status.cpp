// Each thread's last error. It is constant-initialised, so that reading it costs no guard.
#include "bindings/c/call_status.h"

#include <optional>

namespace frostline {
namespace {

thread_local std::optional<Error> last_error;

}  // namespace

frostline_status fail(const Error& error) noexcept {
    last_error = error;
    return static_cast<frostline_status>(error.code());
}

Error null_argument(const char* what) noexcept {
    return Error(Errc::invalid_argument, 0, "{} is NULL", what);
}

}  // namespace frostline

const char* frostline_last_error(void) {
    return frostline::last_error ? frostline::last_error->message() : "";
}
