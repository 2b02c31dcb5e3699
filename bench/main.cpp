// `frostline_bench SUITE [--json FILE]`: runs one suite and shows its rows.
#include "bench/output_file.h"
#include "bench/suite.h"

#include <fmt/core.h>

#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
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
    };
    return kSuites;
}

namespace {

int fail(const std::string& message) {
    fmt::print(stderr, "frostline_bench: error: {}\n", message);
    return 2;
}

int run(const std::vector<std::string>& words) {
    if (words.size() == 1 && words[0] == "--list") {
        for (const Suite& suite : suites()) fmt::print("{:<12} {}\n", suite.name, suite.what);
        return 0;
    }
    if (words.empty() || (words.size() != 1 && (words.size() != 3 || words[1] != "--json"))) {
        return fail("usage: frostline_bench SUITE [--json FILE], or --list");
    }
    if (words.size() == 3) {
        const Result<void> writable = check_output_file(words[2]);
        if (!writable) return fail(writable.error().message());
    }
    for (const Suite& suite : suites()) {
        if (suite.name != words[0]) continue;
        const std::vector<Row> rows = suite.run();
        print_table(rows);
        return words.size() == 1 || write_json(words[2], rows) ? 0 : 1;
    }
    return fail(fmt::format("no suite '{}'; ./run bench lists them", words[0]));
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
