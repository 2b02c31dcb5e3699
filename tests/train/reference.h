// The model's arithmetic once more, in double and as plainly as can be, and central differences of
// it: what kernels compute is compared with this, and shares nothing with it.
#pragma once

#include "bench/train/model_shape.h"
#include "bench/train/text_batches.h"

#include <cstdint>
#include <functional>
#include <vector>

namespace frostline::train::reference {

using Values = std::vector<double>;

/// input (rows x in) * weights (in x out) + bias, which may be empty.
Values linear(const Values& input, const Values& weights, const Values& bias, int in, int out);
Values layer_norm(const Values& input, const Values& gain, const Values& shift);
Values gelu(const Values& input);
/// Of queries, keys and values side by side.
Values attention(const Values& qkv, const ModelShape& shape);
/// The mean over rows.
double cross_entropy(const Values& logits, const std::vector<std::int32_t>& targets);

/// The mean loss of a batch; `groups` as initial_weights makes them.
double loss(const std::vector<Values>& groups, const Batch& batch, const ModelShape& shape);

/// (f(x + h) - f(x - h)) / 2h for the element `index` of x, which is as it was afterwards. In
/// double with this h the error is about 1e-9 of the function's curvature.
double central_difference(Values& x, std::size_t index, const std::function<double()>& f);

/// Numbers between -1 and 1.
Values random_values(std::size_t count, std::uint64_t seed);
double dot(const Values& a, const Values& b);
/// Up to `most` indices below `count`, the first and the last among them.
std::vector<std::size_t> some_indices(std::size_t count, std::size_t most);

}  // namespace frostline::train::reference
