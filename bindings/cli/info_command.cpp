// `frostline info`: facts about the machine, each measured or asked for here and now.
#include "bindings/cli/commands.h"
#include "bindings/cli/info_facts.h"

#include <fmt/core.h>
#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>

#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

namespace frostline::cli {
namespace {

namespace po = boost::program_options;
using Json = nlohmann::ordered_json;

// A field of /proc/meminfo in bytes, or 0 where there is none.
std::uint64_t meminfo_bytes(const std::string& field) {
    std::ifstream file("/proc/meminfo");
    std::string name;
    std::uint64_t kib = 0;
    for (std::string unit; file >> name >> kib; std::getline(file, unit)) {
        if (name == field + ":") return kib * 1024;
    }
    return 0;
}

Result<InfoFacts> collect(const MachineQuery& query) {
    InfoFacts facts;
    facts.cpus = sysconf(_SC_NPROCESSORS_ONLN);
    facts.memory_bytes = meminfo_bytes("MemTotal");
    facts.memory_available_bytes = meminfo_bytes("MemAvailable");
    auto gpus = gpu_info();
    if (gpus) {
        facts.gpus = *std::move(gpus);
    } else {
        facts.gpus_absent_because = gpus.error().message();
    }
    FROSTLINE_TRY(facts.machine, machine_info(query));
    return facts;
}

po::options_description describe() {
    const auto text = [] { return po::value<std::string>()->value_name("TEXT"); };
    po::options_description options("usage: frostline info [options]");
    options.add_options()("json", "print JSON")("pmem", text(),
                                                "file or device to examine for the pmem tier")(
        "swap", text(), "directory to examine for the swap tier (default: TMPDIR)")(
        "measure", "measure again what is known; writes to an existing file given with --pmem")(
        "help", "print this");
    return options;
}

}  // namespace

int info(const std::vector<std::string>& arguments) {
    const po::options_description options = describe();
    po::variables_map values;
    try {
        po::store(po::command_line_parser(arguments).options(options).positional({}).run(), values);
    } catch (const po::error& error) {
        return fail_usage("info", error.what());
    }
    if (values.count("help") > 0) {
        std::ostringstream text;
        text << options;
        fmt::print("{}", text.str());
        return kSuccess;
    }
    MachineQuery query;
    query.measure = values.count("measure") > 0;
    if (values.count("pmem") > 0) query.pmem_path = values["pmem"].as<std::string>();
    if (values.count("swap") > 0) query.swap_directory = values["swap"].as<std::string>();
    for (const char* const name : {"pmem", "swap"}) {
        if (values.count(name) > 0 && values[name].as<std::string>().empty()) {
            return fail_usage("info", fmt::format("{}: the path is empty", name));
        }
    }
    const Result<InfoFacts> facts = collect(query);
    if (!facts) return fail(kFailure, facts.error().message());
    if (values.count("json") > 0) {
        // A path need not be text.
        fmt::print("{}\n", info_json(*facts).dump(2, ' ', false, Json::error_handler_t::replace));
    } else {
        print_info(*facts);
    }
    int status = kSuccess;
    for (const MachineInfo::TierReport& tier : facts->machine.tiers) {
        if (tier.asked_for && !tier.usable) status = fail(kFailure, tier.because);
    }
    return status;
}

}  // namespace frostline::cli
