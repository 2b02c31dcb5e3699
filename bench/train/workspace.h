// What a step needs on the device and does not save: inputs, what flows backwards, and partial
// sums. It is allocated once and shared by all layers, which run one after the other on one stream.
#pragma once

#include "bench/train/device_buffers.h"
#include "bench/train/model_shape.h"

#include <cstdint>

namespace frostline::train {

struct Workspace {
    std::int32_t* tokens;
    std::int32_t* targets;
    std::int32_t* token_starts;  ///< see EmbedTokenGradientArguments
    std::int32_t* sorted_rows;
    float* residual_gradient;   ///< rows x width: of the residual stream, updated in place
    float* branch_gradient;     ///< rows x width: of what a block's branch took from it
    float* wide_gradient;       ///< rows x mlp_width
    float* attention_gradient;  ///< as a layer's attention matrices
    float* transposed_heads;    ///< keys or values as head_width x context
    float* transposed_weights;  ///< the largest weight matrix
    float* statistics;          ///< rows x 2, of the layer norm at hand
    float* column_sums;         ///< chunks x mlp_width
    float* logits;              ///< rows x vocabulary
    float* logits_gradient;
    float* losses;       ///< rows
    float* square_sums;  ///< of all gradients, see kElementsPerSum
    float* clip_scale;   ///< one

    static Result<Workspace> create(const ModelShape& shape, DeviceBuffers& buffers);
    static std::int64_t size_bytes(const ModelShape& shape);
};

}  // namespace frostline::train
