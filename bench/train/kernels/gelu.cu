// GELU by its tanh formula, and its derivative.
#include "bench/train/kernels/thread_place.h"

namespace frostline::train {

constexpr float kGeluSlope = 0.7978845608F;  // sqrt(2 / pi)
constexpr float kGeluCubic = 0.044715F;

FROSTLINE_DEVICE float gelu_tanh(float x) {
    return tanhf(kGeluSlope * (x + kGeluCubic * x * x * x));
}

FROSTLINE_KERNEL(gelu, GeluArguments a) {
    const std::int64_t first = static_cast<std::int64_t>(FROSTLINE_X) * kElementsPerThread;
    const std::int64_t end = group_end<std::int64_t>(first, kElementsPerThread, a.count);
    for (std::int64_t i = first; i < end; ++i) {
        const float x = a.input[i];
        a.result[i] = 0.5F * x * (1.0F + gelu_tanh(x));
    }
}

FROSTLINE_KERNEL(gelu_gradient, GeluGradientArguments a) {
    const std::int64_t first = static_cast<std::int64_t>(FROSTLINE_X) * kElementsPerThread;
    const std::int64_t end = group_end<std::int64_t>(first, kElementsPerThread, a.count);
    for (std::int64_t i = first; i < end; ++i) {
        const float x = a.input[i];
        const float t = gelu_tanh(x);
        const float slope = kGeluSlope * (1.0F + 3.0F * kGeluCubic * x * x);
        a.gradient[i] *= 0.5F * (1.0F + t) + 0.5F * x * (1.0F - t * t) * slope;
    }
}

}  // namespace frostline::train
