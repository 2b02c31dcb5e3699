// AdamW, and the global norm by which gradients are clipped. The norm is summed in stages of fixed
// size, the last one in double, and stays on the device: the host never waits for it.
#include "bench/train/kernels/thread_place.h"

namespace frostline::train {

FROSTLINE_KERNEL(square_sums, SquareSumsArguments a) {
    const std::int64_t first = static_cast<std::int64_t>(FROSTLINE_X) * kElementsPerSum;
    if (first >= a.count) return;
    const std::int64_t end = group_end<std::int64_t>(first, kElementsPerSum, a.count);
    const float* input = a.input + first;
    a.result[FROSTLINE_X] =
        sum_of(static_cast<int>(end - first), [=](int i) { return input[i] * input[i]; });
}

FROSTLINE_KERNEL(clip_scale, ClipScaleArguments a) {
    if (FROSTLINE_X != 0) return;
    double sum = 0.0;
    for (std::int64_t i = 0; i < a.count; ++i) sum += a.square_sums[i];
    const float norm = static_cast<float>(sqrt(sum));
    a.result[0] = norm > a.most ? a.most / norm : 1.0F;
}

FROSTLINE_KERNEL(adamw, AdamwArguments a) {
    const std::int64_t first = static_cast<std::int64_t>(FROSTLINE_X) * kElementsPerThread;
    const std::int64_t end = group_end<std::int64_t>(first, kElementsPerThread, a.count);
    const float clip = a.clip_scale[0];
    for (std::int64_t i = first; i < end; ++i) {
        const float gradient = a.gradient[i] * clip;
        const float m = a.beta1 * a.first_moment[i] + (1.0F - a.beta1) * gradient;
        const float v = a.beta2 * a.second_moment[i] + (1.0F - a.beta2) * gradient * gradient;
        const float decay = i < a.decayed_count ? a.decay : 0.0F;
        const float step = (m / a.first_correction) / (sqrtf(v / a.second_correction) + a.epsilon);
        a.first_moment[i] = m;
        a.second_moment[i] = v;
        a.weights[i] -= a.learning_rate * (step + decay * a.weights[i]);
    }
}

}  // namespace frostline::train
