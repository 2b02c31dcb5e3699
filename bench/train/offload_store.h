// The store that moves tensors through Frostline's tiers while they are not in use.
#pragma once

#include "bench/train/activation_store.h"
#include "bench/train/gpu.h"

#include <memory>

namespace frostline::train {

/// A store on Frostline's manager, for tensors of this GPU and its stream; the GPU outlives it.
/// Errors: unsupported (this build of the trainer has none).
Result<std::unique_ptr<ActivationStore>> open_offload_store(const Gpu& gpu);

}  // namespace frostline::train
