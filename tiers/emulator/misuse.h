// Reports of misuse: each kind has a name from one table, each report is one line on stderr and is
// kept for tests to read. Callers hold the driver's mutex.
#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <string>
#include <string_view>

namespace frostline::emulator {

struct MisuseKind {
    std::string_view name;
    std::string_view sentence;  ///< zero-terminated, as every literal is
};

/// Every kind there is; a report of a name that is not in here aborts.
std::span<const MisuseKind> misuse_kinds();

/// The kind of that name, or null.
const MisuseKind* find_misuse_kind(std::string_view name);

class MisuseReports {
   public:
    /// Keeps "name: details", prints it, and aborts if it is told to.
    void report(std::string_view name, std::string_view details, bool abort_now);
    void clear();
    std::size_t count() const { return count_; }
    /// Null if there is none such.
    const std::string* at(std::size_t index) const;

   private:
    std::deque<std::string> kept_;
    std::size_t count_ = 0;
};

/// Reports with the driver's settings; the driver's mutex is held.
void report_misuse(std::string_view name, std::string_view details);

}  // namespace frostline::emulator
