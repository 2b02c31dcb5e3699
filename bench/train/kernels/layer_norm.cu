// Layer norm over the rows of a matrix, and its gradients. Mean and deviation are found anew for
// the backward pass, which costs less than keeping them: they are far too small to be moved by
// themselves.
#include "bench/train/kernels/thread_place.h"

namespace frostline::train {

FROSTLINE_KERNEL(layer_norm_statistics, LayerNormStatisticsArguments a) {
    const int row = FROSTLINE_X;
    if (row >= a.rows) return;
    const float* input = a.input + static_cast<std::int64_t>(row) * a.width;
    const float mean = sum_of(a.width, [=](int i) { return input[i]; }) / a.width;
    const float variance = sum_of(a.width,
                                  [=](int i) {
                                      const float distance = input[i] - mean;
                                      return distance * distance;
                                  }) /
                           a.width;
    constexpr float kEpsilon = 1e-5F;
    a.statistics[2 * row] = mean;
    a.statistics[2 * row + 1] = 1.0F / sqrtf(variance + kEpsilon);
}

FROSTLINE_KERNEL(layer_norm, LayerNormArguments a) {
    const int row = FROSTLINE_Y;
    const int first = FROSTLINE_X * kElementsPerThread;
    if (row >= a.rows) return;
    const float mean = a.statistics[2 * row];
    const float inverse = a.statistics[2 * row + 1];
    const std::int64_t line = static_cast<std::int64_t>(row) * a.width;
    const int end = group_end(first, kElementsPerThread, a.width);
    for (int i = first; i < end; ++i) {
        a.result[line + i] = (a.input[line + i] - mean) * inverse * a.gain[i] + a.shift[i];
    }
}

FROSTLINE_KERNEL(layer_norm_gradient, LayerNormGradientArguments a) {
    const int row = FROSTLINE_X;
    if (row >= a.rows) return;
    const std::int64_t line = static_cast<std::int64_t>(row) * a.width;
    const float mean = a.statistics[2 * row];
    const float inverse = a.statistics[2 * row + 1];
    const float* input = a.input + line;
    const float* gradient = a.gradient + line;
    const float* gain = a.gain;
    const float sum = sum_of(a.width, [=](int i) { return gradient[i] * gain[i]; }) / a.width;
    const float along =
        sum_of(a.width,
               [=](int i) { return gradient[i] * gain[i] * ((input[i] - mean) * inverse); }) /
        a.width;
    for (int i = 0; i < a.width; ++i) {
        const float normal = (input[i] - mean) * inverse;
        a.result[line + i] =
            a.add[line + i] + inverse * (gradient[i] * gain[i] - sum - normal * along);
    }
}

FROSTLINE_KERNEL(layer_norm_parameter_sums, LayerNormParameterSumsArguments a) {
    const int first = FROSTLINE_X * kElementsPerThread;
    const int row_begin = FROSTLINE_Y * a.rows_per_chunk;
    if (first >= a.width || row_begin >= a.rows) return;
    const int end = group_end(first, kElementsPerThread, a.width);
    const int row_end = group_end(row_begin, a.rows_per_chunk, a.rows);
    LaneSums gain = {};
    LaneSums shift = {};
    for (int row = row_begin; row < row_end; ++row) {
        const float mean = a.statistics[2 * row];
        const float inverse = a.statistics[2 * row + 1];
        const std::int64_t line = static_cast<std::int64_t>(row) * a.width;
        for (int i = first; i < end; ++i) {
            const float gradient = a.gradient[line + i];
            gain.lane[i - first] += gradient * ((a.input[line + i] - mean) * inverse);
            shift.lane[i - first] += gradient;
        }
    }
    const std::int64_t line = static_cast<std::int64_t>(FROSTLINE_Y) * a.width;
    for (int i = first; i < end; ++i) {
        a.gain_sums[line + i] = gain.lane[i - first];
        a.shift_sums[line + i] = shift.lane[i - first];
    }
}

}  // namespace frostline::train
