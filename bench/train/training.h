// A training run as the options ask for it, and what came of it.
#pragma once

#include "bench/train/emulated_work.h"
#include "bench/train/options.h"
#include "bindings/manager.h"
#include "tiers/result.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace frostline::train {

struct StepOutcome {
    int number;              ///< from 1
    std::uint64_t start_ns;  ///< CLOCK_MONOTONIC
    double loss;
    double seconds;
};

struct TrainingOutcome {
    std::string device_name;
    std::string label;  ///< real, or emulated
    std::vector<StepOutcome> steps;
    std::uint64_t peak_device_bytes = 0;  ///< weights, workspace and what the stores held
    /// Of these, what stays on the device whatever is offloaded.
    std::uint64_t fixed_device_bytes = 0;
    std::optional<ManagerStats> tiers;  ///< of the store that offloads
    std::vector<UsageSample> timeline;  ///< likewise
    std::optional<EmulatedWork> work;   ///< nothing on a real device, which does not tell
    std::uint64_t weights_hash = 0;     ///< XXH3 of all weights in the order of the groups
};

/// Trains; calls `on_step` after each step. Paths that the options leave empty are next to the
/// executable. Errors: those of the driver, the text, the stores; io if a loss is not finite.
Result<TrainingOutcome> train(const Options& options,
                              const std::function<void(const StepOutcome&)>& on_step);

}  // namespace frostline::train
