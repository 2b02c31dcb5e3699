// The whole model and one training step: forward, backward, update. Weights and losses of a step
// follow from shape, seed and batches alone; which store holds the tensors changes nothing.
#pragma once

#include "bench/train/block.h"
#include "bench/train/text_batches.h"

#include <memory>
#include <vector>

namespace frostline::train {

/// Where the tensors live that are saved within a step, and those that live across steps. It may
/// be the same store.
struct Stores {
    ActivationStore& activations;
    ActivationStore& states;  ///< gradients and moments
};

class Model {
   public:
    /// Weights from the seed. The device and the stores must outlive it. Errors: invalid_argument
    /// (a shape that cannot be), no_space.
    static Result<std::unique_ptr<Model>> create(const ModelShape& shape, std::uint64_t seed,
                                                 Device& device, const Stores& stores);

    /// One step, from 1; the mean loss of the batch before the update. Waits for the step's end.
    Result<double> step(const Batch& batch, const OptimizerSettings& settings, int number);

    /// Forward and backward only: the mean loss, and gradients in the groups.
    Result<double> gradients(const Batch& batch);

    /// Of each row of the last batch.
    Result<std::vector<float>> losses();

    /// In the order embedding, blocks, head.
    std::vector<ParameterGroup*> groups();
    Result<std::vector<float>> download(const float* from, std::int64_t count);

    /// Weights and workspace, which no store holds.
    std::uint64_t resident_bytes() const noexcept { return buffers_.size_bytes(); }

   private:
    Model(const ModelShape& shape, Device& device, const Stores& stores)
        : shape_(shape), device_(device), stores_(stores), launch_(device), buffers_(device) {}

    Pass pass() { return {shape_, launch_, work_, stores_.activations}; }
    Result<void> upload(const Batch& batch);
    Result<void> forward();
    Result<void> forward_head(Activation residual);
    Result<void> backward();
    Result<void> backward_head(float* square_sums);
    Result<void> backward_embedding(float* square_sums);
    Result<void> update(const OptimizerSettings& settings, int number);
    Result<double> mean_loss();

    ModelShape shape_;
    Device& device_;
    Stores stores_;
    Launches launch_;
    DeviceBuffers buffers_;
    Workspace work_{};
    ParameterGroup embedding_;
    std::vector<Block> blocks_;
    ParameterGroup head_;
    Activation last_residual_;
    Activation last_norm_;
};

}  // namespace frostline::train
