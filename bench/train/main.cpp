// `frostline_train`: trains a small language model on a GPU, or on the emulator of one, through the
// driver API. Exits with 2 if it was called wrongly and with 1 if the run failed.
#include "bench/train/report.h"

#include <fmt/core.h>

#include <cstdio>
#include <exception>

namespace frostline::train {
namespace {

int fail(int status, const Error& error) {
    fmt::print(stderr, "frostline_train: error: {}\n", error.message());
    return status;
}

int run(int argc, const char* const* argv) {
    const auto options = parse_options(argc, argv);
    if (!options) return fail(2, options.error());
    if (!*options) return 0;
    if ((*options)->plan) {
        print_plan((*options)->shape);
        return 0;
    }
    if (const auto writable = check_files(**options); !writable) return fail(1, writable.error());
    const auto outcome = train(**options, print_step);
    if (!outcome) return fail(1, outcome.error());
    print_summary(**options, *outcome);
    if (const auto written = write_files(**options, *outcome); !written) {
        return fail(1, written.error());
    }
    return 0;
}

}  // namespace
}  // namespace frostline::train

int main(int argc, char** argv) {
    int status = 1;
    try {
        status = frostline::train::run(argc, argv);
    } catch (const std::exception& error) {
        fmt::print(stderr, "frostline_train: error: {}\n", error.what());
        return 1;
    }
    // What was printed must have arrived: the disk behind standard output may be full.
    if (std::fflush(stdout) != 0) {
        fmt::print(stderr, "frostline_train: error: cannot write to standard output\n");
        return 1;
    }
    return status;
}
