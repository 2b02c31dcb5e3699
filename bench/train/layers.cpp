// Sums over rows are made in two stages, chunks and then the sum of the chunks, so that a GPU has
// work for many threads and the order stays fixed.
#include "bench/train/layers.h"

namespace frostline::train {
namespace {

ConstMatrices matrix(const float* data, int row) {
    return {data, row, 0, 0};
}

void statistics(const Pass& pass, const float* input) {
    pass.launch.run(LayerNormStatisticsArguments{.input = input,
                                                 .statistics = pass.work.statistics,
                                                 .rows = pass.shape.rows(),
                                                 .width = pass.shape.width});
}

void sum_chunks(const Pass& pass, const float* sums, int columns, float* result) {
    const int chunks = pass.shape.chunks();
    pass.launch.run(ColumnSumsArguments{.input = sums,
                                        .result = result,
                                        .rows = chunks,
                                        .columns = columns,
                                        .rows_per_chunk = chunks});
}

}  // namespace

void linear(const Pass& pass, const Linear& layer, const float* input, const float* add,
            float* result) {
    pass.launch.multiply({.left = matrix(input, layer.in),
                          .right = matrix(layer.weights, layer.out),
                          .result = {result, layer.out, 0, 0},
                          .bias = layer.bias,
                          .add = add,
                          .rows = pass.shape.rows(),
                          .columns = layer.out,
                          .depth = layer.in,
                          .inner_count = 1,
                          .scale = 1.0F,
                          .causal = Causal::none});
}

void linear_parameter_gradients(const Pass& pass, const Linear& layer, const float* input,
                                const float* gradient, float* weights_gradient,
                                float* bias_gradient) {
    pass.launch.multiply_transposed({.left = matrix(input, layer.in),
                                     .right = matrix(gradient, layer.out),
                                     .result = {weights_gradient, layer.out, 0, 0},
                                     .bias = nullptr,
                                     .add = nullptr,
                                     .rows = layer.in,
                                     .columns = layer.out,
                                     .depth = pass.shape.rows(),
                                     .inner_count = 1,
                                     .scale = 1.0F,
                                     .causal = Causal::none});
    if (bias_gradient == nullptr) return;
    pass.launch.run(ColumnSumsArguments{.input = gradient,
                                        .result = pass.work.column_sums,
                                        .rows = pass.shape.rows(),
                                        .columns = layer.out,
                                        .rows_per_chunk = ModelShape::kRowsPerChunk});
    sum_chunks(pass, pass.work.column_sums, layer.out, bias_gradient);
}

void linear_input_gradient(const Pass& pass, const Linear& layer, const float* gradient,
                           float* result) {
    float* transposed = pass.work.transposed_weights;
    pass.launch.run(TransposeArguments{.source = matrix(layer.weights, layer.out),
                                       .result = {transposed, layer.in, 0, 0},
                                       .rows = layer.in,
                                       .columns = layer.out,
                                       .inner_count = 1});
    pass.launch.multiply({.left = matrix(gradient, layer.out),
                          .right = matrix(transposed, layer.in),
                          .result = {result, layer.in, 0, 0},
                          .bias = nullptr,
                          .add = nullptr,
                          .rows = pass.shape.rows(),
                          .columns = layer.in,
                          .depth = layer.out,
                          .inner_count = 1,
                          .scale = 1.0F,
                          .causal = Causal::none});
}

void norm(const Pass& pass, const float* input, const float* gain, const float* shift,
          float* result) {
    statistics(pass, input);
    pass.launch.run(LayerNormArguments{.input = input,
                                       .statistics = pass.work.statistics,
                                       .gain = gain,
                                       .shift = shift,
                                       .result = result,
                                       .rows = pass.shape.rows(),
                                       .width = pass.shape.width});
}

void norm_gradients(const Pass& pass, const float* input, const float* gain, float* gain_gradient,
                    float* shift_gradient) {
    const Workspace& work = pass.work;
    const int width = pass.shape.width;
    float* gain_sums = work.column_sums;
    float* shift_sums = work.column_sums + std::int64_t{pass.shape.chunks()} * width;
    statistics(pass, input);
    pass.launch.run(LayerNormParameterSumsArguments{.input = input,
                                                    .statistics = work.statistics,
                                                    .gradient = work.branch_gradient,
                                                    .gain_sums = gain_sums,
                                                    .shift_sums = shift_sums,
                                                    .rows = pass.shape.rows(),
                                                    .width = width,
                                                    .rows_per_chunk = ModelShape::kRowsPerChunk});
    sum_chunks(pass, gain_sums, width, gain_gradient);
    sum_chunks(pass, shift_sums, width, shift_gradient);
    pass.launch.run(LayerNormGradientArguments{.input = input,
                                               .statistics = work.statistics,
                                               .gain = gain,
                                               .gradient = work.branch_gradient,
                                               .add = work.residual_gradient,
                                               .result = work.residual_gradient,
                                               .rows = pass.shape.rows(),
                                               .width = width});
}

}  // namespace frostline::train
