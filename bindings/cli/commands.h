// The commands of `frostline`. Each gets the words after its name and returns the exit status:
// 0 success, 1 the thing asked for failed, 2 the command line could not be used.
#pragma once

#include <string>
#include <vector>

namespace frostline::cli {

inline constexpr int kSuccess = 0;
inline constexpr int kFailure = 1;
inline constexpr int kUsage = 2;

/// Prints "frostline: error: MESSAGE" to standard error and returns `status`.
int fail(int status, const std::string& message);

/// Prints the same of a command line that cannot be used, with the command's name and where to read
/// on, and returns kUsage.
int fail_usage(const std::string& command, const std::string& message);

/// `frostline info [--json] [--pmem PATH] [--swap DIR] [--measure]`: the machine and its tiers.
int info(const std::vector<std::string>& arguments);

/// `frostline check --dram SIZE [--pmem PATH] ...`: whether these tiers work here.
int check(const std::vector<std::string>& arguments);

/// `frostline plan TRACE --machine FILE [--policy NAME|all] ...`: a schedule, and what it comes to.
int plan(const std::vector<std::string>& arguments);

}  // namespace frostline::cli
