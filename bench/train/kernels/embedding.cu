// Embedding of bytes and positions. The gradient of a byte is summed over the rows that hold it, in
// the order of the rows: the host lists them, since threads that add to one place would need
// atomics.
#include "bench/train/kernels/thread_place.h"

namespace frostline::train {

FROSTLINE_KERNEL(embed, EmbedArguments a) {
    const int first = FROSTLINE_X * kElementsPerThread;
    const int row = FROSTLINE_Y;
    if (row >= a.rows) return;
    const float* token = a.token + static_cast<std::int64_t>(a.tokens[row]) * a.width;
    const float* position = a.position + static_cast<std::int64_t>(row % a.context) * a.width;
    float* result = a.result + static_cast<std::int64_t>(row) * a.width;
    const int end = group_end(first, kElementsPerThread, a.width);
    for (int i = first; i < end; ++i) result[i] = token[i] + position[i];
}

FROSTLINE_KERNEL(embed_token_gradient, EmbedTokenGradientArguments a) {
    const int first = FROSTLINE_X * kElementsPerThread;
    const int token = FROSTLINE_Y;
    if (token >= a.vocabulary) return;
    const int end = group_end(first, kElementsPerThread, a.width);
    LaneSums sums = {};
    for (int at = a.starts[token]; at < a.starts[token + 1]; ++at) {
        const float* gradient = a.gradient + static_cast<std::int64_t>(a.sorted_rows[at]) * a.width;
        for (int i = first; i < end; ++i) sums.lane[i - first] += gradient[i];
    }
    float* result = a.result + static_cast<std::int64_t>(token) * a.width;
    for (int i = first; i < end; ++i) result[i] = sums.lane[i - first];
}

FROSTLINE_KERNEL(embed_position_gradient, EmbedPositionGradientArguments a) {
    const int first = FROSTLINE_X * kElementsPerThread;
    const int position = FROSTLINE_Y;
    if (position >= a.context) return;
    const int end = group_end(first, kElementsPerThread, a.width);
    LaneSums sums = {};
    for (int sequence = 0; sequence < a.batch; ++sequence) {
        const std::int64_t row = static_cast<std::int64_t>(sequence) * a.context + position;
        const float* gradient = a.gradient + row * a.width;
        for (int i = first; i < end; ++i) sums.lane[i - first] += gradient[i];
    }
    float* result = a.result + static_cast<std::int64_t>(position) * a.width;
    for (int i = first; i < end; ++i) result[i] = sums.lane[i - first];
}

}  // namespace frostline::train
