// Every product is a batch over (sequence, head), and skips what the causal mask excludes.
#include "bench/train/attention.h"

#include <cmath>

namespace frostline::train {
namespace {

enum Part : int { queries = 0, keys = 1, values = 2 };

// Describes how the tensors of one layer's attention lie, for the shape at hand.
class Heads {
   public:
    explicit Heads(const Pass& pass) : pass_(pass), shape_(pass.shape) {}

    int batches() const { return shape_.batch * shape_.heads; }
    float scale() const { return 1.0F / std::sqrt(static_cast<float>(shape_.head_width())); }

    ConstMatrices part(const float* qkv, Part which) const {
        const std::int64_t row = 3 * std::int64_t{shape_.width};
        return {qkv + std::int64_t{which} * shape_.width, row, row * shape_.context,
                shape_.head_width()};
    }
    Matrices part(float* qkv, Part which) const {
        const ConstMatrices place = part(static_cast<const float*>(qkv), which);
        return {qkv + std::int64_t{which} * shape_.width, place.row, place.outer, place.inner};
    }
    ConstMatrices square(const float* data) const {
        const std::int64_t inner = std::int64_t{shape_.context} * shape_.context;
        return {data, shape_.context, inner * shape_.heads, inner};
    }
    ConstMatrices merged(const float* data) const {
        return {data, shape_.width, std::int64_t{shape_.width} * shape_.context,
                shape_.head_width()};
    }
    static Matrices writable(const ConstMatrices& place, float* data) {
        return {data, place.row, place.outer, place.inner};
    }

    // The transposed keys or values, head_width x context for each head, in the workspace.
    ConstMatrices transposed(const ConstMatrices& source) const {
        const std::int64_t inner = std::int64_t{shape_.head_width()} * shape_.context;
        const ConstMatrices place{pass_.work.transposed_heads, shape_.context, inner * shape_.heads,
                                  inner};
        pass_.launch.run({.source = source,
                          .result = writable(place, pass_.work.transposed_heads),
                          .rows = shape_.context,
                          .columns = shape_.head_width(),
                          .inner_count = shape_.heads},
                         batches());
        return place;
    }

    MatmulArguments product(const ConstMatrices& left, const ConstMatrices& right,
                            const Matrices& result, int columns, int depth, Causal causal) const {
        return {.left = left,
                .right = right,
                .result = result,
                .bias = nullptr,
                .add = nullptr,
                .rows = shape_.context,
                .columns = columns,
                .depth = depth,
                .inner_count = shape_.heads,
                .scale = 1.0F,
                .causal = causal};
    }

   private:
    const Pass& pass_;
    const ModelShape& shape_;
};

}  // namespace

void attend(const Pass& pass, const float* qkv, float* probabilities, float* result) {
    const Heads heads(pass);
    const int context = pass.shape.context;
    const int head_width = pass.shape.head_width();
    const ConstMatrices square = heads.square(probabilities);
    MatmulArguments scores = heads.product(
        heads.part(qkv, queries), heads.transposed(heads.part(qkv, keys)),
        Heads::writable(square, probabilities), context, head_width, Causal::result_is_lower);
    scores.scale = heads.scale();
    pass.launch.multiply(scores, heads.batches());
    pass.launch.run(CausalSoftmaxArguments{
        .scores = probabilities, .rows = heads.batches() * context, .context = context});
    pass.launch.multiply(heads.product(square, heads.part(qkv, values),
                                       Heads::writable(heads.merged(result), result), head_width,
                                       context, Causal::left_is_lower),
                         heads.batches());
}

void attend_gradient(const Pass& pass, const float* qkv, const float* probabilities,
                     const float* gradient, float* qkv_gradient) {
    const Heads heads(pass);
    const int context = pass.shape.context;
    const int head_width = pass.shape.head_width();
    float* scores_gradient = pass.work.attention_gradient;
    const ConstMatrices square = heads.square(scores_gradient);
    // Of the probabilities, then in place of the scores.
    pass.launch.multiply(
        heads.product(heads.merged(gradient), heads.transposed(heads.part(qkv, values)),
                      Heads::writable(square, scores_gradient), context, head_width,
                      Causal::result_is_lower),
        heads.batches());
    pass.launch.run(CausalSoftmaxGradientArguments{.probabilities = probabilities,
                                                   .gradient = scores_gradient,
                                                   .rows = heads.batches() * context,
                                                   .context = context,
                                                   .scale = heads.scale()});
    pass.launch.multiply_transposed(
        heads.product(heads.square(probabilities), heads.merged(gradient),
                      heads.part(qkv_gradient, values), head_width, context, Causal::left_is_upper),
        heads.batches());
    pass.launch.multiply(
        heads.product(square, heads.part(qkv, keys), heads.part(qkv_gradient, queries), head_width,
                      context, Causal::left_is_lower),
        heads.batches());
    pass.launch.multiply_transposed(
        heads.product(square, heads.part(qkv, queries), heads.part(qkv_gradient, keys), head_width,
                      context, Causal::left_is_upper),
        heads.batches());
}

}  // namespace frostline::train
