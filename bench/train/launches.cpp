// A grid covers its data exactly once; what is beyond the data in the last blocks, kernels skip.
#include "bench/train/launches.h"

#include <algorithm>

namespace frostline::train {
namespace {

constexpr std::int64_t kThreadsPerBlock = 128;
constexpr std::int64_t kWidestBlock = 16;

constexpr unsigned blocks(std::int64_t threads, std::int64_t per_block) {
    return static_cast<unsigned>((threads + per_block - 1) / per_block);
}

// `count` pieces of work, `each` of which one thread does. Blocks are small where threads are long:
// a row of a matrix is long, and there may be few rows.
LaunchShape line(std::int64_t count, std::int64_t each) {
    const std::int64_t threads = (count + each - 1) / each;
    const std::int64_t per_block = each > 1 ? kThreadsPerBlock : kThreadsPerBlock / 4;
    return {{blocks(threads, per_block)}, {static_cast<unsigned>(per_block)}};
}

// Groups of columns in x and rows in y. Neighbours in x read neighbouring memory.
LaunchShape plane(int columns, int columns_each, int rows, int rows_each, int batches = 1) {
    const std::int64_t x = blocks(columns, columns_each);
    const std::int64_t y = blocks(rows, rows_each);
    const std::int64_t wide = std::min(x, kWidestBlock);
    const std::int64_t high = kThreadsPerBlock / wide;
    return {{blocks(x, wide), blocks(y, high), static_cast<unsigned>(batches)},
            {static_cast<unsigned>(wide), static_cast<unsigned>(high)}};
}

int chunks(int rows, int rows_per_chunk) {
    return (rows + rows_per_chunk - 1) / rows_per_chunk;
}

}  // namespace

template <class Arguments>
void Launches::launch(const char* kernel, const LaunchShape& shape, const Arguments& arguments) {
    if (failure_) return;
    const auto done = device_.launch(kernel, shape, std::as_bytes(std::span(&arguments, 1)));
    if (!done) failure_ = done.error();
}

Result<void> Launches::status() {
    const std::optional<Error> failure = std::exchange(failure_, std::nullopt);
    if (failure) return *failure;
    return ok();
}

void Launches::multiply(const MatmulArguments& a, int batches) {
    launch("matmul", plane(a.columns, kTileColumns, a.rows, kTileRows, batches), a);
}

void Launches::multiply_transposed(const MatmulArguments& a, int batches) {
    launch("matmul_transposed", plane(a.columns, kTileColumns, a.rows, kTileRows, batches), a);
}

void Launches::run(const TransposeArguments& a, int batches) {
    launch("transpose", plane(a.rows, kElementsPerThread, a.columns, 1, batches), a);
}

void Launches::run(const EmbedArguments& a) {
    launch("embed", plane(a.width, kElementsPerThread, a.rows, 1), a);
}

void Launches::run(const EmbedTokenGradientArguments& a) {
    launch("embed_token_gradient", plane(a.width, kElementsPerThread, a.vocabulary, 1), a);
}

void Launches::run(const EmbedPositionGradientArguments& a) {
    launch("embed_position_gradient", plane(a.width, kElementsPerThread, a.context, 1), a);
}

void Launches::run(const LayerNormStatisticsArguments& a) {
    launch("layer_norm_statistics", line(a.rows, 1), a);
}

void Launches::run(const LayerNormArguments& a) {
    launch("layer_norm", plane(a.width, kElementsPerThread, a.rows, 1), a);
}

void Launches::run(const LayerNormGradientArguments& a) {
    launch("layer_norm_gradient", line(a.rows, 1), a);
}

void Launches::run(const LayerNormParameterSumsArguments& a) {
    launch("layer_norm_parameter_sums",
           plane(a.width, kElementsPerThread, chunks(a.rows, a.rows_per_chunk), 1), a);
}

void Launches::run(const ColumnSumsArguments& a) {
    launch("column_sums", plane(a.columns, kElementsPerThread, chunks(a.rows, a.rows_per_chunk), 1),
           a);
}

void Launches::run(const CausalSoftmaxArguments& a) {
    launch("causal_softmax", line(a.rows, 1), a);
}

void Launches::run(const CausalSoftmaxGradientArguments& a) {
    launch("causal_softmax_gradient", line(a.rows, 1), a);
}

void Launches::run(const GeluArguments& a) {
    launch("gelu", line(a.count, kElementsPerThread), a);
}

void Launches::run(const GeluGradientArguments& a) {
    launch("gelu_gradient", line(a.count, kElementsPerThread), a);
}

void Launches::run(const CrossEntropyArguments& a) {
    launch("cross_entropy", line(a.rows, 1), a);
}

void Launches::run(const SquareSumsArguments& a) {
    launch("square_sums", line(a.count, kElementsPerSum), a);
}

void Launches::run(const ClipScaleArguments& a) {
    launch("clip_scale", {{1}, {1}}, a);
}

void Launches::run(const AdamwArguments& a) {
    launch("adamw", line(a.count, kElementsPerThread), a);
}

}  // namespace frostline::train
