// `frostline info`: facts about the machine, each measured or asked for here and now.
#include "bindings/byte_size.h"
#include "bindings/cli/commands.h"
#include "bindings/gpu_info.h"
#include "bindings/manager.h"

#include <fmt/core.h>
#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>

#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

namespace frostline::cli {
namespace {

namespace po = boost::program_options;

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

std::string cuda_version_text(int version) {
    return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

nlohmann::ordered_json collect() {
    nlohmann::ordered_json out;
    out["version"] = version();
    out["cpus"] = sysconf(_SC_NPROCESSORS_ONLN);
    out["memory_bytes"] = meminfo_bytes("MemTotal");
    out["memory_available_bytes"] = meminfo_bytes("MemAvailable");
    out["cuda_headers"] = cuda_version_text(cuda_header_version());
    const auto gpus = gpu_info();
    out["gpus"] = nlohmann::ordered_json::array();
    if (!gpus) {
        out["gpus_absent_because"] = gpus.error().message();
        return out;
    }
    out["cuda_driver"] = cuda_version_text(gpus->driver_version);
    for (const GpuInfo::Gpu& gpu : gpus->gpus) {
        out["gpus"].push_back({{"name", gpu.name}, {"memory_bytes", gpu.memory_bytes}});
    }
    return out;
}

void print_text(const nlohmann::ordered_json& facts) {
    fmt::print("frostline     {}\n", facts["version"].get<std::string>());
    fmt::print("CPUs          {}\n", facts["cpus"].get<long>());
    fmt::print("memory        {} ({} available)\n",
               format_byte_size(facts["memory_bytes"].get<std::uint64_t>()),
               format_byte_size(facts["memory_available_bytes"].get<std::uint64_t>()));
    fmt::print("CUDA headers  {} (build time)\n", facts["cuda_headers"].get<std::string>());
    if (facts.contains("gpus_absent_because")) {
        fmt::print("GPUs          none: {}\n", facts["gpus_absent_because"].get<std::string>());
    }
    for (const auto& gpu : facts["gpus"]) {
        fmt::print("GPU           {} ({})\n", gpu["name"].get<std::string>(),
                   format_byte_size(gpu["memory_bytes"].get<std::uint64_t>()));
    }
}

}  // namespace

int info(const std::vector<std::string>& arguments) {
    po::options_description options("usage: frostline info [options]");
    options.add_options()("json", "print JSON")("help", "print this");
    po::variables_map values;
    try {
        po::store(po::command_line_parser(arguments).options(options).positional({}).run(), values);
    } catch (const po::error& error) {
        return fail(kUsage, fmt::format("info: {}", error.what()));
    }
    if (values.count("help") > 0) {
        std::ostringstream text;
        text << options;
        fmt::print("{}", text.str());
        return kSuccess;
    }
    const nlohmann::ordered_json facts = collect();
    if (values.count("json") > 0) {
        fmt::print("{}\n", facts.dump(2));
    } else {
        print_text(facts);
    }
    return kSuccess;
}

}  // namespace frostline::cli
