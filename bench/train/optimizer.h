// A group of parameters with all that is kept for it, and its update. Weights stay on the device at
// one address; gradient and moments are tensors of a store, in use only while a kernel needs them.
#pragma once

#include "bench/train/activation_store.h"
#include "bench/train/device_buffers.h"
#include "bench/train/launches.h"
#include "bench/train/parameters.h"

#include <span>

namespace frostline::train {

struct OptimizerSettings {
    float learning_rate = 1e-3F;
    float beta1 = 0.9F;
    float beta2 = 0.95F;
    float epsilon = 1e-8F;
    float decay = 0.1F;
    float most_norm = 1.0F;  ///< gradients of a greater norm, all together, are scaled down to it
};

/// How many partial sums of squares one group, or all of a model, has.
std::int64_t square_sum_count(const ParameterCount& count);
std::int64_t square_sum_count(const ModelShape& shape);

class ParameterGroup {
   public:
    /// `initial` has count.all weights; the moments start at zero. Errors: no_space.
    static Result<ParameterGroup> create(const ParameterCount& count,
                                         std::span<const float> initial, Device& device,
                                         DeviceBuffers& buffers, ActivationStore& states);

    const float* weights() const noexcept { return weights_; }
    std::int64_t size() const noexcept { return count_.all; }

    /// Room for this step's gradient, to be written wholly.
    Result<float*> begin_gradient();
    /// The gradient has been queued: adds its partial sums of squares at `square_sums`.
    Result<void> finish_gradient(Launches& launch, float* square_sums);
    /// This step's gradient; between finish_gradient and update.
    Activation& gradient() noexcept { return gradient_; }

    /// Hints that the update comes soon.
    void prefetch() const noexcept;
    /// One step, from 1, and the end of the gradient. `clip_scale` is on the device.
    Result<void> update(Launches& launch, const OptimizerSettings& settings, int step,
                        const float* clip_scale);

   private:
    ParameterCount count_{};
    ActivationStore* states_ = nullptr;
    float* weights_ = nullptr;
    Activation gradient_;
    Activation first_moment_;
    Activation second_moment_;
};

}  // namespace frostline::train
