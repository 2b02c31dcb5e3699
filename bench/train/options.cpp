// Every value is checked here, so that the run starts with what it can do.
#include "bench/train/options.h"

#include <fmt/core.h>
#include <boost/program_options.hpp>

#include <cmath>
#include <sstream>
#include <string>
#include <vector>

namespace frostline::train {
namespace {

namespace po = boost::program_options;

po::options_description describe(Options& options, std::string& offload,
                                 std::vector<std::string>& tiers) {
    const auto number = [](int& value) {
        return po::value<int>(&value)->default_value(value)->value_name("N");
    };
    const auto file = [](std::string& value) {
        return po::value<std::string>(&value)->value_name("FILE");
    };
    po::options_description described("usage: frostline_train [options]");
    described.add_options()("layers", number(options.shape.layers), "transformer blocks");
    described.add_options()("width", number(options.shape.width), "of the residual stream");
    described.add_options()("heads", number(options.shape.heads), "of attention, in each block");
    described.add_options()("context", number(options.shape.context), "bytes of a sequence");
    described.add_options()("batch", number(options.shape.batch), "sequences of a step");
    described.add_options()("steps", number(options.steps), "how many to train");
    described.add_options()(
        "seed",
        po::value<std::uint64_t>(&options.seed)->default_value(options.seed)->value_name("N"),
        "of weights and batches");
    described.add_options()("lr",
                            po::value<float>(&options.optimizer.learning_rate)
                                ->default_value(options.optimizer.learning_rate, "0.001")
                                ->value_name("RATE"),
                            "learning rate");
    described.add_options()("text", file(options.text),
                            "what to learn (default: Frostline's own documentation)");
    described.add_options()("device", number(options.device), "which GPU, as CUDA counts");
    described.add_options()("module", file(options.module),
                            "the kernels (default: next to this program)");
    described.add_options()(
        "offload", po::value<std::string>(&offload)->default_value("none")->value_name("WHAT"),
        "what Frostline moves: none, activations, or all (gradients and optimizer, too)");
    described.add_options()(
        "tier", po::value<std::vector<std::string>>(&tiers)->value_name("NAME=VALUE"),
        "an option of Frostline's, such as device=64MiB, dram=1GiB or swap=/tmp; once for each");
    described.add_options()("losses", file(options.losses), "write each loss, exactly, one a line");
    described.add_options()("report", file(options.report), "write a report as JSON");
    described.add_options()("weights-hash", po::bool_switch(&options.weights_hash),
                            "print the XXH3 of all weights at the end");
    described.add_options()("plan", po::bool_switch(&options.plan),
                            "print how much memory this needs, and do not run");
    described.add_options()("help", "print this");
    return described;
}

Result<Offload> offload_of(const std::string& name) {
    if (name == "none") return Offload::none;
    if (name == "activations") return Offload::activations;
    if (name == "all") return Offload::all;
    return Error(Errc::invalid_argument, 0, "--offload is '{}'; it may be none, activations or all",
                 name);
}

Result<ManagerOptions> tiers_of(const std::vector<std::string>& settings) {
    ManagerOptions tiers;
    for (const std::string& each : settings) {
        const std::size_t equals = each.find('=');
        if (equals == std::string::npos) {
            return Error(Errc::invalid_argument, 0, "--tier is '{}'; it may be NAME=VALUE", each);
        }
        FROSTLINE_TRY_VOID(set_option(tiers, each.substr(0, equals), each.substr(equals + 1)));
    }
    return tiers;
}

}  // namespace

Result<std::optional<Options>> parse_options(int argc, const char* const* argv) {
    Options options;
    std::string offload;
    std::vector<std::string> tiers;
    const po::options_description described = describe(options, offload, tiers);
    try {
        po::variables_map values;
        po::store(po::command_line_parser(argc, argv)
                      .options(described)
                      .positional(po::positional_options_description())
                      .run(),
                  values);
        po::notify(values);
        if (values.count("help") != 0) {
            std::ostringstream text;
            text << described;
            fmt::print("{}", text.str());
            return std::optional<Options>();
        }
    } catch (const po::error& error) {
        return Error(Errc::invalid_argument, 0, "{}; see --help", error.what());
    }
    FROSTLINE_TRY_VOID(options.shape.check());
    FROSTLINE_TRY(options.offload, offload_of(offload));
    FROSTLINE_TRY(options.tiers, tiers_of(tiers));
    if (options.offload == Offload::none && !tiers.empty()) {
        return Error(Errc::invalid_argument, 0, "--tier is given, but nothing to --offload");
    }
    if (options.steps < 1) {
        return Error(Errc::invalid_argument, 0, "steps is {}; it may be 1 or more", options.steps);
    }
    const float rate = options.optimizer.learning_rate;
    if (!std::isfinite(rate) || rate < 0.0F) {
        return Error(Errc::invalid_argument, 0, "lr is {}; it may be 0 or more", rate);
    }
    return std::optional<Options>(std::move(options));
}

}  // namespace frostline::train
