// Matrix products. Each thread adds up a tile of kTileRows x kTileColumns in registers, over the
// depth from its start to its end: an element's value does not depend on which tile it falls into.
#include "bench/train/kernels/thread_place.h"

namespace frostline::train {

struct TileRange {
    int row;
    int column;
    int depth_begin;
    int depth_end;
};

// Rows and columns beyond the matrix repeat its last one, and are not stored.
template <bool kTransposed, bool kWhole>
FROSTLINE_DEVICE void add_up(const float* __restrict__ left, const float* __restrict__ right,
                             const MatmulArguments& a, const TileRange& at,
                             float (&sums)[kTileRows][kTileColumns]) {
    std::int64_t rows[kTileRows];
    int columns[kTileColumns];
    for (int i = 0; i < kTileRows; ++i) {
        const int row = at.row + i < a.rows ? at.row + i : a.rows - 1;
        rows[i] = kTransposed ? row : row * a.left.row;
    }
    for (int j = 0; j < kTileColumns; ++j) {
        columns[j] = kWhole || at.column + j < a.columns ? at.column + j : a.columns - 1;
    }
    float tile[kTileRows][kTileColumns] = {};
    const std::int64_t left_step = kTransposed ? a.left.row : 1;
    for (int k = at.depth_begin; k < at.depth_end; ++k) {
        const float* from = right + k * a.right.row;
        float values[kTileColumns];
        for (int j = 0; j < kTileColumns; ++j) {
            values[j] = kWhole ? from[at.column + j] : from[columns[j]];
        }
        for (int i = 0; i < kTileRows; ++i) {
            const float factor = left[rows[i] + k * left_step];
            for (int j = 0; j < kTileColumns; ++j) tile[i][j] += factor * values[j];
        }
    }
    for (int i = 0; i < kTileRows; ++i) {
        for (int j = 0; j < kTileColumns; ++j) sums[i][j] = tile[i][j];
    }
}

FROSTLINE_DEVICE void store(const MatmulArguments& a, const TileRange& at, std::int64_t place,
                            const float (&sums)[kTileRows][kTileColumns]) {
    // Loops of constant length, so that the sums stay in registers.
    for (int i = 0; i < kTileRows; ++i) {
        const std::int64_t line = place + (at.row + i) * a.result.row;
        for (int j = 0; j < kTileColumns; ++j) {
            const int column = at.column + j;
            if (at.row + i >= a.rows || column >= a.columns) continue;
            float value = sums[i][j] * a.scale;
            if (a.bias != nullptr) value += a.bias[column];
            if (a.add != nullptr) value += a.add[line + column];
            a.result.data[line + column] = value;
        }
    }
}

template <bool kTransposed>
FROSTLINE_DEVICE void multiply_tile(const MatmulArguments& a, int x, int y, int z) {
    TileRange at = {y * kTileRows, x * kTileColumns, 0, a.depth};
    if (at.row >= a.rows || at.column >= a.columns) return;
    const int row_end = group_end(at.row, kTileRows, a.rows);
    if (a.causal == Causal::result_is_lower && at.column >= row_end) return;
    if (a.causal == Causal::left_is_lower && row_end < a.depth) at.depth_end = row_end;
    if (a.causal == Causal::left_is_upper) at.depth_begin = at.row;
    const int outer = z / a.inner_count;
    const int inner = z % a.inner_count;
    const float* left = a.left.data + outer * a.left.outer + inner * a.left.inner;
    const float* right = a.right.data + outer * a.right.outer + inner * a.right.inner;
    float sums[kTileRows][kTileColumns];
    if (at.column + kTileColumns <= a.columns) {
        add_up<kTransposed, true>(left, right, a, at, sums);
    } else {
        add_up<kTransposed, false>(left, right, a, at, sums);
    }
    store(a, at, outer * a.result.outer + inner * a.result.inner, sums);
}

FROSTLINE_KERNEL(matmul, MatmulArguments a) {
    multiply_tile<false>(a, FROSTLINE_X, FROSTLINE_Y, FROSTLINE_Z);
}

FROSTLINE_KERNEL(matmul_transposed, MatmulArguments a) {
    multiply_tile<true>(a, FROSTLINE_X, FROSTLINE_Y, FROSTLINE_Z);
}

FROSTLINE_KERNEL(transpose, TransposeArguments a) {
    const int first = FROSTLINE_X * kElementsPerThread;
    const int column = FROSTLINE_Y;
    if (column >= a.columns) return;
    const int outer = FROSTLINE_Z / a.inner_count;
    const int inner = FROSTLINE_Z % a.inner_count;
    const float* source = a.source.data + outer * a.source.outer + inner * a.source.inner;
    float* result = a.result.data + outer * a.result.outer + inner * a.result.inner;
    const int end = group_end(first, kElementsPerThread, a.rows);
    for (int row = first; row < end; ++row) {
        result[column * a.result.row + row] = source[row * a.source.row + column];
    }
}

}  // namespace frostline::train
