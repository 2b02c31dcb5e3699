// An environment variable of a test's own: set, or taken away, until the scope ends.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace frostline {

class EnvironmentVariable {
   public:
    EnvironmentVariable(const char* name, const std::optional<std::string>& value) : name_(name) {
        if (const char* const before = std::getenv(name)) before_ = before;
        put(value);
    }
    EnvironmentVariable(const EnvironmentVariable&) = delete;
    EnvironmentVariable& operator=(const EnvironmentVariable&) = delete;
    ~EnvironmentVariable() { put(before_); }

   private:
    void put(const std::optional<std::string>& value) const {
        if (value) ::setenv(name_, value->c_str(), 1);
        if (!value) ::unsetenv(name_);
    }

    const char* name_;
    std::optional<std::string> before_;
};

}  // namespace frostline
