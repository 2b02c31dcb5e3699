// Written from the definitions, loop by loop.
#include "tests/train/reference.h"

#include "bench/train/counter_random.h"
#include "bench/train/parameters.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace frostline::train::reference {
namespace {

Values added(Values a, const Values& b) {
    for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
    return a;
}

Values slice(const double* first, std::int64_t count) {
    return {first, first + count};
}

Values block(const Values& input, const Values& slab, const ModelShape& shape) {
    const auto w = tensors_in<BlockTensors>(shape, slab.data());
    const int width = shape.width;
    const int wide = shape.mlp_width();
    const Values first = layer_norm(input, slice(w.first_gain, width), slice(w.first_shift, width));
    const Values qkv = linear(first, slice(w.attention_in, std::int64_t{3} * width * width),
                              slice(w.attention_in_bias, 3 * width), width, 3 * width);
    const Values attended = attention(qkv, shape);
    const Values middle =
        added(linear(attended, slice(w.attention_out, std::int64_t{width} * width),
                     slice(w.attention_out_bias, width), width, width),
              input);
    const Values second =
        layer_norm(middle, slice(w.second_gain, width), slice(w.second_shift, width));
    const Values inner = gelu(linear(second, slice(w.mlp_in, std::int64_t{width} * wide),
                                     slice(w.mlp_in_bias, wide), width, wide));
    return added(linear(inner, slice(w.mlp_out, std::int64_t{wide} * width),
                        slice(w.mlp_out_bias, width), wide, width),
                 middle);
}

}  // namespace

Values linear(const Values& input, const Values& weights, const Values& bias, int in, int out) {
    const std::size_t rows = input.size() / in;
    Values result(rows * out, 0.0);
    for (std::size_t row = 0; row < rows; ++row) {
        for (int column = 0; column < out; ++column) {
            double sum = bias.empty() ? 0.0 : bias[column];
            for (int k = 0; k < in; ++k) sum += input[row * in + k] * weights[k * out + column];
            result[row * out + column] = sum;
        }
    }
    return result;
}

Values layer_norm(const Values& input, const Values& gain, const Values& shift) {
    const std::size_t width = gain.size();
    Values result(input.size());
    for (std::size_t row = 0; row < input.size(); row += width) {
        double mean = 0.0;
        for (std::size_t i = 0; i < width; ++i) mean += input[row + i] / width;
        double variance = 0.0;
        for (std::size_t i = 0; i < width; ++i) {
            variance += (input[row + i] - mean) * (input[row + i] - mean) / width;
        }
        const double inverse = 1.0 / std::sqrt(variance + 1e-5);
        for (std::size_t i = 0; i < width; ++i) {
            result[row + i] = (input[row + i] - mean) * inverse * gain[i] + shift[i];
        }
    }
    return result;
}

Values gelu(const Values& input) {
    Values result;
    for (const double x : input) {
        const double inner = std::sqrt(2.0 / std::acos(-1.0)) * (x + 0.044715 * x * x * x);
        result.push_back(0.5 * x * (1.0 + std::tanh(inner)));
    }
    return result;
}

Values attention(const Values& qkv, const ModelShape& shape) {
    const int size = shape.head_width();
    Values result(shape.row_elements(), 0.0);
    const auto place = [&](int sequence, int position, int part, int head) {
        const std::size_t row = sequence * shape.context + position;
        return qkv.data() + row * 3 * shape.width + part * shape.width + head * size;
    };
    for (int sequence = 0; sequence < shape.batch; ++sequence) {
        for (int head = 0; head < shape.heads; ++head) {
            for (int at = 0; at < shape.context; ++at) {
                Values weights;
                for (int seen = 0; seen <= at; ++seen) {
                    double score = 0.0;
                    for (int i = 0; i < size; ++i) {
                        score +=
                            place(sequence, at, 0, head)[i] * place(sequence, seen, 1, head)[i];
                    }
                    weights.push_back(std::exp(score / std::sqrt(size)));
                }
                const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
                for (int i = 0; i < size; ++i) {
                    double value = 0.0;
                    for (int seen = 0; seen <= at; ++seen) {
                        value += weights[seen] / sum * place(sequence, seen, 2, head)[i];
                    }
                    const std::size_t row = sequence * shape.context + at;
                    result[row * shape.width + head * size + i] = value;
                }
            }
        }
    }
    return result;
}

double cross_entropy(const Values& logits, const std::vector<std::int32_t>& targets) {
    const std::size_t classes = logits.size() / targets.size();
    double sum = 0.0;
    for (std::size_t row = 0; row < targets.size(); ++row) {
        double all = 0.0;
        for (std::size_t i = 0; i < classes; ++i) all += std::exp(logits[row * classes + i]);
        sum += std::log(all) - logits[row * classes + targets[row]];
    }
    return sum / targets.size();
}

double loss(const std::vector<Values>& groups, const Batch& batch, const ModelShape& shape) {
    const int width = shape.width;
    const auto embedding = tensors_in<EmbeddingTensors>(shape, groups.front().data());
    Values residual;
    for (std::size_t row = 0; row < batch.tokens.size(); ++row) {
        for (int i = 0; i < width; ++i) {
            residual.push_back(embedding.token[batch.tokens[row] * width + i] +
                               embedding.position[row % shape.context * width + i]);
        }
    }
    for (int layer = 0; layer < shape.layers; ++layer) {
        residual = block(residual, groups[layer + 1], shape);
    }
    const auto head = tensors_in<HeadTensors>(shape, groups.back().data());
    const Values last = layer_norm(residual, slice(head.gain, width), slice(head.shift, width));
    constexpr int kClasses = ModelShape::kVocabulary;
    return cross_entropy(
        linear(last, slice(head.output, std::int64_t{width} * kClasses), {}, width, kClasses),
        batch.targets);
}

double central_difference(Values& x, std::size_t index, const std::function<double()>& f) {
    constexpr double kStep = 1e-5;
    const double middle = x[index];
    x[index] = middle + kStep;
    const double above = f();
    x[index] = middle - kStep;
    const double below = f();
    x[index] = middle;
    return (above - below) / (2 * kStep);
}

Values random_values(std::size_t count, std::uint64_t seed) {
    Values values;
    for (std::size_t i = 0; i < count; ++i) {
        // Few bits, so that a float holds the same number.
        const auto bits = static_cast<std::int64_t>(random_bits(seed, i) >> 48);
        values.push_back(static_cast<double>(bits - 32768) / 32768.0);
    }
    return values;
}

double dot(const Values& a, const Values& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

std::vector<std::size_t> some_indices(std::size_t count, std::size_t most) {
    std::vector<std::size_t> indices;
    if (count <= most) {
        indices.resize(count);
        std::iota(indices.begin(), indices.end(), 0);
        return indices;
    }
    for (std::size_t i = 0; i < most; ++i) indices.push_back(i * (count - 1) / (most - 1));
    return indices;
}

}  // namespace frostline::train::reference
