// The command line of frostline_train.
#pragma once

#include "bench/train/model_shape.h"
#include "bench/train/optimizer.h"
#include "bindings/manager_options.h"

#include <cstdint>
#include <optional>
#include <string>

namespace frostline::train {

/// What goes through the store that offloads.
enum class Offload : std::uint8_t { none, activations, all };

struct Options {
    ModelShape shape;
    OptimizerSettings optimizer;
    int steps = 20;
    std::uint64_t seed = 1;
    int device = 0;
    Offload offload = Offload::none;
    ManagerOptions tiers;  ///< of the store that offloads
    bool weights_hash = false;
    bool plan = false;
    std::string text;    ///< empty: the text next to the executable
    std::string module;  ///< empty: the module next to the executable that fits the driver
    std::string losses;  ///< empty: none
    std::string report;  ///< empty: none
};

/// Nothing if help was asked for, and printed. Errors: invalid_argument, naming the option.
Result<std::optional<Options>> parse_options(int argc, const char* const* argv);

}  // namespace frostline::train
