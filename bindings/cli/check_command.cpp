// `frostline check`: opens the tiers that a user means to use, each lower one alone and then all
// together, sends more through them than the upper ones hold and compares every byte that comes
// back, so that a mistake shows before a training run.
#include "bindings/byte_size.h"
#include "bindings/cli/commands.h"
#include "bindings/manager.h"

#include <fmt/core.h>
#include <boost/program_options.hpp>

#include <algorithm>
#include <cstring>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace frostline::cli {
namespace {

namespace po = boost::program_options;

constexpr std::uint64_t kTensorBytes = std::uint64_t{1} << 20;
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;

po::options_description describe() {
    const auto text = [] { return po::value<std::string>()->value_name("TEXT"); };
    po::options_description options("usage: frostline check --dram SIZE [options]");
    options.add_options()("dram", text(), "budget of the DRAM tier, such as 256MiB")(
        "device", text(), "budget of GPU memory, which is then the fastest tier")(
        "gpu", text(),
        "which GPU that is, or DRAM is pinned for, as CUDA counts them (default: 0)")(
        "pmem", text(), "file or DAX device of the pmem tier")("pmem_bytes", text(),
                                                               "size of the pmem tier")(
        "swap", text(), "directories of the swap files, separated by colons")(
        "swap_bytes", text(), "most that the swap files may grow to")(
        "swap_devices", text(), "true: a place in --swap may be a block device (overwritten)")(
        "numa", text(), "none, bind:0,1, preferred:0 or interleave:0,1")(
        "far_node", text(), "NUMA node that is a tier of its own, such as CXL memory")(
        "far_bytes", text(), "budget of that tier")(
        "pin", text(), "true: register DRAM with the GPU's driver, if there is a GPU")(
        "verify", text(), "false: do not checksum what leaves the fastest tier (default: true)")(
        "help", "print this");
    return options;
}

// Different for every tensor and at every place of it.
std::vector<std::byte> content(std::uint64_t seed) {
    std::vector<std::byte> bytes(kTensorBytes);
    std::mt19937_64 random(seed);
    for (std::size_t i = 0; i + sizeof(std::uint64_t) <= bytes.size(); i += sizeof(std::uint64_t)) {
        const std::uint64_t value = random();
        std::memcpy(bytes.data() + i, &value, sizeof value);
    }
    return bytes;
}

void print_tiers(const ManagerStats& stats) {
    fmt::print("{:<6} {:<9} {:>11} {:>11} {:>11} {:>11}  {}\n", "tier", "label", "budget", "peak",
               "moved in", "moved out", "location");
    for (const TierStats& tier : stats.tiers) {
        fmt::print("{:<6} {:<9} {:>11} {:>11} {:>11} {:>11}  {}\n", tier.name, tier.label,
                   format_byte_size(tier.budget_bytes), format_byte_size(tier.peak_bytes),
                   format_byte_size(tier.moved_in_bytes), format_byte_size(tier.moved_out_bytes),
                   tier.location);
    }
    for (const TierStats& tier : stats.tiers) {
        if (!tier.fallback.empty()) fmt::print("note: {}: {}\n", tier.name, tier.fallback);
        if (tier.staging_bytes > 0) {
            fmt::print("note: {}: {} of host memory pinned for its copies\n", tier.name,
                       format_byte_size(tier.staging_bytes));
        }
    }
}

// What went wrong, or nothing.
std::string move_through(Manager& manager, std::uint64_t total_bytes) {
    std::vector<TensorId> ids;
    for (std::uint64_t i = 0; i < total_bytes / kTensorBytes; ++i) {
        const auto id = manager.put(content(i));
        if (!id) return id.error().message();
        ids.push_back(*id);
    }
    std::vector<std::byte> back(kTensorBytes);
    for (std::size_t i = ids.size(); i-- > 0;) {
        if (const auto got = manager.get(ids[i], back); !got) return got.error().message();
        if (back != content(i)) return fmt::format("tensor {} came back with other bytes", i);
        if (const auto dropped = manager.drop(ids[i]); !dropped) return dropped.error().message();
    }
    return {};
}

// Opens the tiers and sends more through them than the upper ones hold. With `checked_bytes` it
// prints the tiers and says how much that was. Returns what went wrong, or nothing.
std::string round_trip(const ManagerOptions& options, std::uint64_t* checked_bytes) {
    auto manager = Manager::open(options);
    if (!manager) return manager.error().message();
    std::uint64_t upper_bytes = *options.dram_bytes;
    std::uint64_t room_bytes = 0;
    for (const TierStats& tier : manager->stats().tiers) {
        const bool device = std::strcmp(tier.name, "device") == 0;
        if (device) upper_bytes += tier.budget_bytes;
        // A GPU hands out its memory in pieces of twice a tensor's size.
        room_bytes += device ? tier.budget_bytes / 2 : tier.budget_bytes;
    }
    const std::uint64_t total_bytes =
        std::min({2 * upper_bytes + kTensorBytes, room_bytes, kMostBytes});
    if (total_bytes < kTensorBytes) {
        return fmt::format("{} of room are too little to check: give at least {}",
                           format_byte_size(total_bytes), format_byte_size(kTensorBytes));
    }
    std::string problem = move_through(*manager, total_bytes);
    if (!problem.empty()) return problem;
    if (checked_bytes != nullptr) {
        *checked_bytes = total_bytes / kTensorBytes * kTensorBytes;
        print_tiers(manager->stats());
        return {};
    }
    const TierStats lower = manager->stats().tiers.back();
    if (lower.moved_in_bytes > 0) return {};
    return fmt::format("{}: {} are too little to check: give at least {}", lower.name,
                       format_byte_size(lower.budget_bytes), format_byte_size(kTensorBytes));
}

// The same options with one lower tier each, and little above it, so that it must be used.
std::vector<ManagerOptions> each_lower_tier(const ManagerOptions& options) {
    ManagerOptions none = options;
    none.device_bytes.reset();
    if (!options.pin) none.gpu.reset();
    none.dram_bytes = std::min(options.dram_bytes.value_or(0), 4 * kTensorBytes);
    none.far_node.reset();
    none.far_bytes.reset();
    none.pmem_path.clear();
    none.pmem_bytes = 0;
    none.swap_places.clear();
    none.swap_bytes = 0;
    std::vector<ManagerOptions> out;
    if (options.device_bytes && options.dram_bytes.value_or(0) > 0) {
        out.push_back(none);
        out.back().device_bytes = std::min(*options.device_bytes, 4 * kTensorBytes);
        out.back().gpu = options.gpu;
        out.back().dram_bytes = options.dram_bytes;
    }
    if (options.far_node) {
        out.push_back(none);
        out.back().far_node = options.far_node;
        out.back().far_bytes = options.far_bytes;
    }
    if (!options.pmem_path.empty()) {
        out.push_back(none);
        out.back().pmem_path = options.pmem_path;
        out.back().pmem_bytes = options.pmem_bytes;
    }
    if (!options.swap_places.empty()) {
        out.push_back(none);
        out.back().swap_places = options.swap_places;
        out.back().swap_bytes = options.swap_bytes;
    }
    return out;
}

}  // namespace

int check(const std::vector<std::string>& arguments) {
    const po::options_description options = describe();
    po::variables_map values;
    ManagerOptions parsed;
    parsed.verify = true;
    try {
        po::store(po::command_line_parser(arguments).options(options).positional({}).run(), values);
    } catch (const po::error& error) {
        return fail_usage("check", error.what());
    }
    if (values.count("help") > 0) {
        std::ostringstream text;
        text << options;
        fmt::print("{}", text.str());
        return kSuccess;
    }
    for (const auto& [name, value] : values) {
        const auto set = set_option(parsed, name, value.as<std::string>());
        if (!set) return fail_usage("check", set.error().message());
    }
    // Each lower tier alone first: together, a faster one could take everything.
    for (const ManagerOptions& alone : each_lower_tier(parsed)) {
        const std::string problem = round_trip(alone, nullptr);
        if (!problem.empty()) return fail(kFailure, problem);
    }
    std::uint64_t checked_bytes = 0;
    const std::string problem = round_trip(parsed, &checked_bytes);
    if (!problem.empty()) return fail(kFailure, problem);
    fmt::print("each tier was written and read by itself; together they held {} unchanged\n",
               format_byte_size(checked_bytes));
    return kSuccess;
}

}  // namespace frostline::cli
