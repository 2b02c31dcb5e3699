// Small training steps on small machines, drawn at random: layers with weights, activations that
// the backward pass reads again, scratch tensors, and an optimizer that writes the weights.
#pragma once

#include "migration/planning/machine.h"
#include "migration/planning/trace.h"

#include <cstdint>
#include <initializer_list>
#include <random>

namespace frostline {

struct RandomTraining {
    explicit RandomTraining(std::mt19937_64& random);

    Trace trace;
    Machine machine;  ///< the device holds any one kernel, and not much more than the step at most
};

/// The device first, then as many tiers as there are rates, reached over one bus of
/// `bus_bytes_per_second` each way; a tier has its own rate each way.
Machine machine_with(std::uint64_t device_bytes, double bus_bytes_per_second,
                     std::initializer_list<double> rates, std::uint64_t lower_bytes = 1 << 20);

}  // namespace frostline
