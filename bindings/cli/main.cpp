// `frostline`: picks the command and turns every failure into one line and an exit status.
#include "bindings/cli/commands.h"
#include "bindings/manager.h"

#include <fmt/core.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

namespace frostline::cli {
namespace {

constexpr const char* kUsageText =
    "usage: frostline COMMAND [options]\n"
    "\n"
    "  info [--json] ...      this machine: its nodes, devices and tiers, and how fast they are\n"
    "  check --dram SIZE ...  open tiers, move data through them and compare it\n"
    "  plan TRACE ...         a schedule for a training step with less memory than it needs\n"
    "\n"
    "  frostline COMMAND --help   a command's options\n"
    "  frostline --version\n";

int run(const std::vector<std::string>& words) {
    if (words.empty() || words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
        fmt::print("{}", kUsageText);
        return words.empty() ? kUsage : kSuccess;
    }
    if (words[0] == "--version") {
        fmt::print("frostline {}\n", version());
        return kSuccess;
    }
    const std::vector<std::string> arguments(words.begin() + 1, words.end());
    if (words[0] == "info") return info(arguments);
    if (words[0] == "check") return check(arguments);
    if (words[0] == "plan") return plan(arguments);
    return fail(kUsage, fmt::format("unknown command '{}': the commands are info, check and plan; "
                                    "see frostline --help",
                                    words[0]));
}

}  // namespace

int fail(int status, const std::string& message) {
    fmt::print(stderr, "frostline: error: {}\n", message);
    return status;
}

int fail_usage(const std::string& command, const std::string& message) {
    return fail(kUsage, fmt::format("{}: {}; see frostline {} --help", command, message, command));
}

}  // namespace frostline::cli

int main(int argc, char** argv) {
    int status = frostline::cli::kFailure;
    try {
        status = frostline::cli::run({argv + 1, argv + argc});
    } catch (const std::exception& error) {
        return frostline::cli::fail(frostline::cli::kFailure, error.what());
    }
    // What was printed must have arrived: the disk behind standard output may be full.
    if (std::fflush(stdout) != 0) {
        return frostline::cli::fail(frostline::cli::kFailure, "cannot write to standard output");
    }
    return status;
}
