// Sums of columns, in two launches: over chunks of rows, then over the chunks. The order is fixed
// by the sizes alone.
#include "bench/train/kernels/thread_place.h"

namespace frostline::train {

FROSTLINE_KERNEL(column_sums, ColumnSumsArguments a) {
    const int first = FROSTLINE_X * kElementsPerThread;
    const int row_begin = FROSTLINE_Y * a.rows_per_chunk;
    if (first >= a.columns || row_begin >= a.rows) return;
    const int end = group_end(first, kElementsPerThread, a.columns);
    const int row_end = group_end(row_begin, a.rows_per_chunk, a.rows);
    LaneSums sums = {};
    for (int row = row_begin; row < row_end; ++row) {
        const float* line = a.input + static_cast<std::int64_t>(row) * a.columns;
        for (int i = first; i < end; ++i) sums.lane[i - first] += line[i];
    }
    float* result = a.result + static_cast<std::int64_t>(FROSTLINE_Y) * a.columns;
    for (int i = first; i < end; ++i) result[i] = sums.lane[i - first];
}

}  // namespace frostline::train
