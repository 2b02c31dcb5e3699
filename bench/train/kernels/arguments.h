// What each kernel takes: one struct a kernel, by value, seen by the kernels and by the program
// that launches them, so that the two cannot disagree. All matrices are row-major and of float; all
// pointers are to device memory, and a kernel writes only through the pointers that are not const.
// No struct has padding, whose bytes would be left over from something else: whoever looks for
// addresses among arguments, as the emulator does, must not see one that nobody passed.
#pragma once

#include <cstdint>

#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wpadded"

namespace frostline::train {

/// What one thread computes of a matrix: a tile that fits into registers.
constexpr int kTileRows = 4;
constexpr int kTileColumns = 8;
/// Consecutive elements that one thread of an elementwise kernel handles.
constexpr int kElementsPerThread = 8;
/// Elements that one thread sums up in the first stage of a sum over everything.
constexpr int kElementsPerSum = 1024;

/// One matrix for each (outer, inner) index of a batch: for attention, the sequence and the head.
struct ConstMatrices {
    const float* data;
    std::int64_t row;  ///< elements from one row to the next
    std::int64_t outer;
    std::int64_t inner;
};
struct Matrices {
    float* data;
    std::int64_t row;
    std::int64_t outer;
    std::int64_t inner;
};

/// Which part of a product a causal mask leaves: what it excludes is neither read nor written.
enum class Causal : int {
    none = 0,
    result_is_lower = 1,  ///< of the result only tiles that reach the diagonal are needed
    left_is_lower = 2,    ///< the left factor, as multiplied, is zero above the diagonal
    left_is_upper = 3,    ///< the left factor, as multiplied, is zero below the diagonal
};

/// result = scale * left * right (+ bias, for each column) (+ add, which lies as the result does).
/// left is rows x depth (matmul) or its transpose depth x rows (matmul_transposed), right is
/// depth x columns. x: tiles of columns; y: tiles of rows; z: outer * inner_count + inner.
struct MatmulArguments {
    ConstMatrices left;
    ConstMatrices right;
    Matrices result;
    const float* bias;  ///< or null
    const float* add;   ///< or null; may be the result itself
    int rows;
    int columns;
    int depth;
    int inner_count;
    float scale;
    Causal causal;
};

/// result (columns x rows) = source (rows x columns). x: groups of 8 rows; y: columns; z as above.
struct TransposeArguments {
    ConstMatrices source;
    Matrices result;
    int rows;
    int columns;
    int inner_count;
    int unused = 0;
};

/// token[tokens[row]] + position[row % context]. x: groups of 8 columns; y: rows.
struct EmbedArguments {
    const std::int32_t* tokens;
    const float* token;
    const float* position;
    float* result;
    int rows;
    int context;
    int width;
    int unused = 0;
};

/// Gradient of one token's embedding: the sum over the rows that hold it, listed by the host as
/// sorted_rows[starts[token]] to sorted_rows[starts[token + 1]]. x: groups of columns; y: tokens.
struct EmbedTokenGradientArguments {
    const std::int32_t* starts;
    const std::int32_t* sorted_rows;
    const float* gradient;
    float* result;
    int vocabulary;
    int width;
};

/// Gradient of the positions: the sum over the sequences. x: groups of columns; y: positions.
struct EmbedPositionGradientArguments {
    const float* gradient;
    float* result;
    int batch;
    int context;
    int width;
    int unused = 0;
};

/// statistics[row] = {mean, 1 / standard deviation}. x: rows.
struct LayerNormStatisticsArguments {
    const float* input;
    float* statistics;
    int rows;
    int width;
};

/// result = (input - mean) / deviation * gain + shift. x: groups of columns; y: rows.
struct LayerNormArguments {
    const float* input;
    const float* statistics;
    const float* gain;
    const float* shift;
    float* result;
    int rows;
    int width;
};

/// result = gradient of the input, plus `add`, which may be the result itself. x: rows.
struct LayerNormGradientArguments {
    const float* input;
    const float* statistics;
    const float* gain;
    const float* gradient;
    const float* add;
    float* result;
    int rows;
    int width;
};

/// Sums over rows_per_chunk rows each, for gain and shift, as rows of the two results. x: groups of
/// columns; y: chunks.
struct LayerNormParameterSumsArguments {
    const float* input;
    const float* statistics;
    const float* gradient;
    float* gain_sums;
    float* shift_sums;
    int rows;
    int width;
    int rows_per_chunk;
    int unused = 0;
};

/// result[chunk] = sum of rows_per_chunk rows of the input. x: groups of columns; y: chunks.
struct ColumnSumsArguments {
    const float* input;
    float* result;
    int rows;
    int columns;
    int rows_per_chunk;
    int unused = 0;
};

/// In place: softmax of the first (row % context) + 1 elements of each row, and zero beyond. x:
/// rows.
struct CausalSoftmaxArguments {
    float* scores;
    int rows;
    int context;
};

/// In place: from the gradient of the probabilities to that of the unscaled scores. What lies above
/// the diagonal is not read and becomes zero. x: rows.
struct CausalSoftmaxGradientArguments {
    const float* probabilities;
    float* gradient;
    int rows;
    int context;
    float scale;
    int unused = 0;
};

/// result = gelu(input), by the tanh formula. x: groups of elements.
struct GeluArguments {
    const float* input;
    float* result;
    std::int64_t count;
};

/// In place: gradient *= gelu'(input). x: groups of elements.
struct GeluGradientArguments {
    const float* input;
    float* gradient;
    std::int64_t count;
};

/// losses[row] = -log softmax(logits[row])[targets[row]], and the gradient of the mean of all
/// losses. x: rows.
struct CrossEntropyArguments {
    const float* logits;
    const std::int32_t* targets;
    float* losses;
    float* gradient;
    int rows;
    int classes;
};

/// result[i] = sum of the squares of elements i * kElementsPerSum and following. x: sums.
struct SquareSumsArguments {
    const float* input;
    float* result;
    std::int64_t count;
};

/// result[0] = min(1, most / sqrt(sum of the inputs)): by what to multiply gradients so that their
/// norm is at most `most`. One thread.
struct ClipScaleArguments {
    const float* square_sums;
    float* result;
    std::int64_t count;
    float most;
    int unused = 0;
};

/// One step of AdamW. Elements below decayed_count decay. x: groups of elements.
struct AdamwArguments {
    float* weights;
    const float* gradient;
    float* first_moment;
    float* second_moment;
    const float* clip_scale;  ///< one number on the device
    std::int64_t count;
    std::int64_t decayed_count;
    float learning_rate;
    float beta1;
    float beta2;
    float first_correction;   ///< 1 - beta1 to the power of the step, from 1
    float second_correction;  ///< 1 - beta2 to the power of the step
    float epsilon;
    float decay;
    int unused = 0;
};

}  // namespace frostline::train

#pragma GCC diagnostic pop
