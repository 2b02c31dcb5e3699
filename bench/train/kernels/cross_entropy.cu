// Cross entropy and its gradient in one pass over the logits: the probabilities are needed by both.
#include "bench/train/kernels/thread_place.h"

namespace frostline::train {

FROSTLINE_KERNEL(cross_entropy, CrossEntropyArguments a) {
    const int row = FROSTLINE_X;
    if (row >= a.rows) return;
    const float* logits = a.logits + static_cast<std::int64_t>(row) * a.classes;
    float* gradient = a.gradient + static_cast<std::int64_t>(row) * a.classes;
    float most = logits[0];
    for (int i = 1; i < a.classes; ++i) most = logits[i] > most ? logits[i] : most;
    for (int i = 0; i < a.classes; ++i) gradient[i] = expf(logits[i] - most);
    const float sum = sum_of(a.classes, [=](int i) { return gradient[i]; });
    const int target = a.targets[row];
    a.losses[row] = logf(sum) - (logits[target] - most);
    const float share = 1.0F / (sum * static_cast<float>(a.rows));
    for (int i = 0; i < a.classes; ++i) gradient[i] *= share;
    gradient[target] -= 1.0F / static_cast<float>(a.rows);
}

}  // namespace frostline::train
