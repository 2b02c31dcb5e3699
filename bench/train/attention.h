// Causal multi-head attention between its two linear layers. Queries, keys and values of all heads
// lie side by side in one row of 3 * width; results and their gradients in one of width.
#pragma once

#include "bench/train/layers.h"

namespace frostline::train {

/// probabilities (sequence, head, context, context) and result from `qkv`. Uses
/// work.transposed_heads.
void attend(const Pass& pass, const float* qkv, float* probabilities, float* result);

/// The gradient of `qkv` from that of the result. Uses work.transposed_heads and
/// work.attention_gradient.
void attend_gradient(const Pass& pass, const float* qkv, const float* probabilities,
                     const float* gradient, float* qkv_gradient);

}  // namespace frostline::train
