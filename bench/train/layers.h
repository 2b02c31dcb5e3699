// Linear layers and layer norms, forward and backward, as sequences of kernels. All tensors are
// row-major with shape.rows() rows; gradients of parameters are written, not added to.
#pragma once

#include "bench/train/activation_store.h"
#include "bench/train/launches.h"
#include "bench/train/model_shape.h"
#include "bench/train/workspace.h"

namespace frostline::train {

/// What a pass over the model needs everywhere.
struct Pass {
    const ModelShape& shape;
    Launches& launch;
    const Workspace& work;
    ActivationStore& activations;
};

/// A matrix of `in` x `out` weights. The bias and its gradient may be null.
struct Linear {
    const float* weights;
    const float* bias;
    int in;
    int out;
};

/// result = input * weights + bias (+ add).
void linear(const Pass& pass, const Linear& layer, const float* input, const float* add,
            float* result);
/// The gradients of weights and bias.
void linear_parameter_gradients(const Pass& pass, const Linear& layer, const float* input,
                                const float* gradient, float* weights_gradient,
                                float* bias_gradient);
/// result = gradient of the input. Uses work.transposed_weights.
void linear_input_gradient(const Pass& pass, const Linear& layer, const float* gradient,
                           float* result);

/// result = norm of the input, which is as wide as the model. Uses work.statistics.
void norm(const Pass& pass, const float* input, const float* gain, const float* shift,
          float* result);
/// Adds the gradient of the input to work.residual_gradient, from that of the norm's result in
/// work.branch_gradient. Uses work.statistics and work.column_sums.
void norm_gradients(const Pass& pass, const float* input, const float* gain, float* gain_gradient,
                    float* shift_gradient);

}  // namespace frostline::train
