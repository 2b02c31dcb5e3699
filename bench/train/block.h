// One transformer block: attention and an MLP, each behind a layer norm and beside a residual
// path. What its backward pass needs it saves in nine tensors, each in use as briefly as possible.
#pragma once

#include "bench/train/layers.h"
#include "bench/train/optimizer.h"

namespace frostline::train {

class Block {
   public:
    explicit Block(ParameterGroup parameters) : parameters_(std::move(parameters)) {}

    /// Takes the residual stream, in use, and returns the next, in use.
    Result<Activation> forward(const Pass& pass, Activation input);

    /// Hints that backward comes next.
    void prefetch() const noexcept;
    /// Turns work.residual_gradient from that of the result into that of the input, and leaves the
    /// parameters' gradient, with its partial sums of squares at `square_sums`. Drops what was
    /// saved.
    Result<void> backward(const Pass& pass, float* square_sums);

    ParameterGroup& parameters() noexcept { return parameters_; }

   private:
    using Gradients = BlockTensors<float>;

    Result<void> forward_attention(const Pass& pass);
    Result<Activation> forward_mlp(const Pass& pass);
    Result<void> backward_mlp(const Pass& pass, const Gradients& gradients);
    Result<void> backward_attention(const Pass& pass, const Gradients& gradients);
    BlockTensors<const float> weights(const Pass& pass) const;

    ParameterGroup parameters_;
    // In the order in which the forward pass makes them.
    Activation input_;
    Activation first_norm_;
    Activation qkv_;
    Activation probabilities_;
    Activation attended_;
    Activation middle_;
    Activation second_norm_;
    Activation before_gelu_;
    Activation after_gelu_;
};

}  // namespace frostline::train
