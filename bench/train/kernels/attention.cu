// The causal softmax of attention. Beyond the diagonal probabilities and gradients are exactly
// zero, which the products that read them rely on: they skip whole tiles, not single elements.
#include "bench/train/kernels/thread_place.h"

namespace frostline::train {

FROSTLINE_KERNEL(causal_softmax, CausalSoftmaxArguments a) {
    const int row = FROSTLINE_X;
    if (row >= a.rows) return;
    float* scores = a.scores + static_cast<std::int64_t>(row) * a.context;
    const int seen = row % a.context + 1;
    float most = scores[0];
    for (int i = 1; i < seen; ++i) most = scores[i] > most ? scores[i] : most;
    for (int i = 0; i < seen; ++i) scores[i] = expf(scores[i] - most);
    const float share = 1.0F / sum_of(seen, [=](int i) { return scores[i]; });
    for (int i = 0; i < seen; ++i) scores[i] *= share;
    for (int i = seen; i < a.context; ++i) scores[i] = 0.0F;
}

FROSTLINE_KERNEL(causal_softmax_gradient, CausalSoftmaxGradientArguments a) {
    const int row = FROSTLINE_X;
    if (row >= a.rows) return;
    const std::int64_t line = static_cast<std::int64_t>(row) * a.context;
    const float* probabilities = a.probabilities + line;
    float* gradient = a.gradient + line;
    const int seen = row % a.context + 1;
    const float along = sum_of(seen, [=](int i) { return gradient[i] * probabilities[i]; });
    for (int i = 0; i < seen; ++i) {
        gradient[i] = probabilities[i] * (gradient[i] - along) * a.scale;
    }
    for (int i = seen; i < a.context; ++i) gradient[i] = 0.0F;
}

}  // namespace frostline::train
