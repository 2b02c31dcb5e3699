// `frostline_bench SUITE [--json FILE]`: runs one suite and shows its rows.
// `frostline_bench heaps --allocs FILE`: the suite's rows of one stream, which a user recorded.
#include "bench/output_file.h"
#include "bench/suite.h"

#include <fmt/core.h>

#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace frostline::bench {

const std::vector<Suite>& suites() {
    static const std::vector<Suite> kSuites{
        {"device", "GPU memory that comes and goes, and copies of it, against plain copies",
         device_suite},
        {"heaps", "the allocators of GPU memory: time, fragmentation, records, against others",
         heaps_suite},
        {"residency", "the residency word and the tensor table, against their budgets",
         residency_suite},
        {"tiers", "copies between tiers, against bare loops over the same medium", tiers_suite},
        {"pipelines", "copies between device and file through DRAM, against the slower half",
         pipelines_suite},
        {"planner", "how good plans of real traces are, and what planning takes", planner_suite},
    };
    return kSuites;
}

namespace {

int fail(const std::string& message) {
    fmt::print(stderr, "frostline_bench: error: {}\n", message);
    return 2;
}

struct Arguments {
    std::string suite;
    std::string json;    // a file; empty: none
    std::string allocs;  // the same
};

// Nothing, where they are not as the usage has them.
std::optional<Arguments> parse(const std::vector<std::string>& words) {
    if (words.size() % 2 == 0) return std::nullopt;
    Arguments arguments{.suite = words[0]};
    for (std::size_t i = 1; i < words.size(); i += 2) {
        std::string* const value = words[i] == "--json"     ? &arguments.json
                                   : words[i] == "--allocs" ? &arguments.allocs
                                                            : nullptr;
        if (value == nullptr || !value->empty() || words[i + 1].empty()) return std::nullopt;
        *value = words[i + 1];
    }
    return arguments;
}

int run(const std::vector<std::string>& words) {
    if (words.size() == 1 && words[0] == "--list") {
        for (const Suite& suite : suites()) fmt::print("{:<12} {}\n", suite.name, suite.what);
        return 0;
    }
    const std::optional<Arguments> arguments = parse(words);
    if (!arguments) {
        return fail(
            "usage: frostline_bench SUITE [--json FILE], frostline_bench heaps --allocs FILE "
            "[--json FILE], or --list");
    }
    if (!arguments->json.empty()) {
        const Result<void> writable = check_output_file(arguments->json);
        if (!writable) return fail(writable.error().message());
    }
    if (!arguments->allocs.empty() && arguments->suite != "heaps") {
        return fail(
            fmt::format("--allocs is for the suite heaps, which replays them; '{}' does not",
                        arguments->suite));
    }
    for (const Suite& suite : suites()) {
        if (suite.name != arguments->suite) continue;
        const std::vector<Row> rows =
            arguments->allocs.empty() ? suite.run() : replay_rows(arguments->allocs);
        print_table(rows);
        return arguments->json.empty() || write_json(arguments->json, rows) ? 0 : 1;
    }
    return fail(fmt::format("no suite '{}'; ./run bench lists them", arguments->suite));
}

// Two things are decided when a program starts, so it starts itself again if they are not as they
// should be; false after they were set for that. libpmem is to use its persistent-memory paths on
// tmpfs. And the loader is to keep room for thread-local data of libraries that come late, which
// jemalloc needs more of than there is.
bool start_settings_are_in_force() {
    constexpr std::string_view kRoom = "glibc.rtld.optional_static_tls=16384";
    const char* const known = std::getenv("GLIBC_TUNABLES");
    const std::string tunables = known == nullptr ? "" : known;
    const bool has_room = tunables.find(kRoom) != std::string::npos;
    if (has_room && std::getenv("PMEM_IS_PMEM_FORCE") != nullptr) return true;
    if (!has_room) {
        const std::string more = tunables + (tunables.empty() ? "" : ":") + std::string(kRoom);
        if (setenv("GLIBC_TUNABLES", more.c_str(), 1) != 0) return true;  // no memory: as it is
    }
    return setenv("PMEM_IS_PMEM_FORCE", "1", 1) != 0;
}

}  // namespace
}  // namespace frostline::bench

int main(int argc, char** argv) {
    if (!frostline::bench::start_settings_are_in_force()) {
        (void)execv("/proc/self/exe", argv);
        return frostline::bench::fail("cannot start again with other settings");
    }
    try {
        return frostline::bench::run({argv + 1, argv + argc});
    } catch (const std::exception& error) {
        return frostline::bench::fail(error.what());
    }
}
