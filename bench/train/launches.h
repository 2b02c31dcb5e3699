// Queues kernels with the grids that their sizes need. After a failure nothing more is queued, so
// that a pass over the model reads as what it computes and is checked once, at its end.
#pragma once

#include "bench/train/device.h"
#include "bench/train/kernels/arguments.h"

#include <array>
#include <optional>

namespace frostline::train {

/// Every kernel of the module, by the name it has there.
inline constexpr std::array kKernelNames{
    "adamw",
    "causal_softmax",
    "causal_softmax_gradient",
    "clip_scale",
    "column_sums",
    "cross_entropy",
    "embed",
    "embed_position_gradient",
    "embed_token_gradient",
    "gelu",
    "gelu_gradient",
    "layer_norm",
    "layer_norm_gradient",
    "layer_norm_parameter_sums",
    "layer_norm_statistics",
    "matmul",
    "matmul_transposed",
    "square_sums",
    "transpose",
};

/// Kernels of one device. What each computes is said where its arguments are declared.
class Launches {
   public:
    explicit Launches(Device& device) : device_(device) {}

    /// `batches` is outer * inner: how many products there are.
    void multiply(const MatmulArguments& a, int batches = 1);
    /// The same with the left factor given as depth x rows.
    void multiply_transposed(const MatmulArguments& a, int batches = 1);
    void run(const TransposeArguments& a, int batches = 1);
    void run(const EmbedArguments& a);
    void run(const EmbedTokenGradientArguments& a);
    void run(const EmbedPositionGradientArguments& a);
    void run(const LayerNormStatisticsArguments& a);
    void run(const LayerNormArguments& a);
    void run(const LayerNormGradientArguments& a);
    void run(const LayerNormParameterSumsArguments& a);
    void run(const ColumnSumsArguments& a);
    void run(const CausalSoftmaxArguments& a);
    void run(const CausalSoftmaxGradientArguments& a);
    void run(const GeluArguments& a);
    void run(const GeluGradientArguments& a);
    void run(const CrossEntropyArguments& a);
    void run(const SquareSumsArguments& a);
    void run(const ClipScaleArguments& a);
    void run(const AdamwArguments& a);

    /// The first failure since the last call.
    Result<void> status();

   private:
    template <class Arguments>
    void launch(const char* kernel, const LaunchShape& shape, const Arguments& arguments);

    Device& device_;
    std::optional<Error> failure_;
};

}  // namespace frostline::train
