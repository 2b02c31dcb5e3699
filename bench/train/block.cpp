// A tensor is done as soon as the last kernel of the pass that reads it is queued, and in the
// backward pass dropped there: that is what lets a store give its room to the next one.
#include "bench/train/block.h"

#include "bench/train/attention.h"

namespace frostline::train {
namespace {

// The four linear layers of a block.
struct Linears {
    Linear attention_in;
    Linear attention_out;
    Linear mlp_in;
    Linear mlp_out;
};

Linears linears(const ModelShape& shape, const BlockTensors<const float>& w) {
    const int width = shape.width;
    return {{w.attention_in, w.attention_in_bias, width, 3 * width},
            {w.attention_out, w.attention_out_bias, width, width},
            {w.mlp_in, w.mlp_in_bias, width, shape.mlp_width()},
            {w.mlp_out, w.mlp_out_bias, shape.mlp_width(), width}};
}

Result<void> allocate(const Pass& pass, Activation& tensor, std::int64_t count) {
    FROSTLINE_TRY(tensor, Activation::allocate(pass.activations, count));
    return ok();
}

}  // namespace

BlockTensors<const float> Block::weights(const Pass& pass) const {
    return tensors_in<BlockTensors>(pass.shape, parameters_.weights());
}

Result<Activation> Block::forward(const Pass& pass, Activation input) {
    input_ = std::move(input);
    FROSTLINE_TRY_VOID(forward_attention(pass));
    return forward_mlp(pass);
}

Result<void> Block::forward_attention(const Pass& pass) {
    const ModelShape& shape = pass.shape;
    const BlockTensors<const float> w = weights(pass);
    const Linears layer = linears(shape, w);
    FROSTLINE_TRY_VOID(allocate(pass, first_norm_, shape.row_elements()));
    norm(pass, input_.data(), w.first_gain, w.first_shift, first_norm_.data());
    FROSTLINE_TRY_VOID(allocate(pass, qkv_, 3 * shape.row_elements()));
    linear(pass, layer.attention_in, first_norm_.data(), nullptr, qkv_.data());
    FROSTLINE_TRY_VOID(first_norm_.done());
    FROSTLINE_TRY_VOID(allocate(pass, probabilities_, shape.attention_elements()));
    FROSTLINE_TRY_VOID(allocate(pass, attended_, shape.row_elements()));
    attend(pass, qkv_.data(), probabilities_.data(), attended_.data());
    FROSTLINE_TRY_VOID(qkv_.done());
    FROSTLINE_TRY_VOID(probabilities_.done());
    FROSTLINE_TRY_VOID(allocate(pass, middle_, shape.row_elements()));
    linear(pass, layer.attention_out, attended_.data(), input_.data(), middle_.data());
    FROSTLINE_TRY_VOID(attended_.done());
    return input_.done();
}

Result<Activation> Block::forward_mlp(const Pass& pass) {
    const ModelShape& shape = pass.shape;
    const BlockTensors<const float> w = weights(pass);
    const Linears layer = linears(shape, w);
    const std::int64_t wide = shape.row_elements() * ModelShape::kMlpFactor;
    FROSTLINE_TRY_VOID(allocate(pass, second_norm_, shape.row_elements()));
    norm(pass, middle_.data(), w.second_gain, w.second_shift, second_norm_.data());
    FROSTLINE_TRY_VOID(allocate(pass, before_gelu_, wide));
    linear(pass, layer.mlp_in, second_norm_.data(), nullptr, before_gelu_.data());
    FROSTLINE_TRY_VOID(second_norm_.done());
    FROSTLINE_TRY_VOID(allocate(pass, after_gelu_, wide));
    pass.launch.run(
        GeluArguments{.input = before_gelu_.data(), .result = after_gelu_.data(), .count = wide});
    FROSTLINE_TRY_VOID(before_gelu_.done());
    Activation result;
    FROSTLINE_TRY_VOID(allocate(pass, result, shape.row_elements()));
    linear(pass, layer.mlp_out, after_gelu_.data(), middle_.data(), result.data());
    FROSTLINE_TRY_VOID(after_gelu_.done());
    FROSTLINE_TRY_VOID(middle_.done());
    return result;
}

void Block::prefetch() const noexcept {
    for (const Activation* tensor : {&after_gelu_, &before_gelu_, &second_norm_, &middle_,
                                     &attended_, &probabilities_, &qkv_, &first_norm_, &input_}) {
        tensor->prefetch();
    }
}

Result<void> Block::backward(const Pass& pass, float* square_sums) {
    FROSTLINE_TRY(float* slab, parameters_.begin_gradient());
    const Gradients gradients = tensors_in<BlockTensors>(pass.shape, slab);
    FROSTLINE_TRY_VOID(backward_mlp(pass, gradients));
    FROSTLINE_TRY_VOID(backward_attention(pass, gradients));
    return parameters_.finish_gradient(pass.launch, square_sums);
}

Result<void> Block::backward_mlp(const Pass& pass, const Gradients& gradients) {
    const Workspace& work = pass.work;
    const BlockTensors<const float> w = weights(pass);
    const Linears layer = linears(pass.shape, w);
    FROSTLINE_TRY(const float* after_gelu, after_gelu_.use());
    linear_parameter_gradients(pass, layer.mlp_out, after_gelu, work.residual_gradient,
                               gradients.mlp_out, gradients.mlp_out_bias);
    after_gelu_ = Activation();
    linear_input_gradient(pass, layer.mlp_out, work.residual_gradient, work.wide_gradient);
    FROSTLINE_TRY(const float* before_gelu, before_gelu_.use());
    pass.launch.run(
        GeluGradientArguments{.input = before_gelu,
                              .gradient = work.wide_gradient,
                              .count = pass.shape.row_elements() * ModelShape::kMlpFactor});
    before_gelu_ = Activation();
    FROSTLINE_TRY(const float* second_norm, second_norm_.use());
    linear_parameter_gradients(pass, layer.mlp_in, second_norm, work.wide_gradient,
                               gradients.mlp_in, gradients.mlp_in_bias);
    second_norm_ = Activation();
    linear_input_gradient(pass, layer.mlp_in, work.wide_gradient, work.branch_gradient);
    FROSTLINE_TRY(const float* middle, middle_.use());
    norm_gradients(pass, middle, w.second_gain, gradients.second_gain, gradients.second_shift);
    middle_ = Activation();
    return ok();
}

Result<void> Block::backward_attention(const Pass& pass, const Gradients& gradients) {
    const Workspace& work = pass.work;
    const BlockTensors<const float> w = weights(pass);
    const Linears layer = linears(pass.shape, w);
    FROSTLINE_TRY(const float* attended, attended_.use());
    linear_parameter_gradients(pass, layer.attention_out, attended, work.residual_gradient,
                               gradients.attention_out, gradients.attention_out_bias);
    attended_ = Activation();
    linear_input_gradient(pass, layer.attention_out, work.residual_gradient, work.branch_gradient);
    FROSTLINE_TRY(const float* probabilities, probabilities_.use());
    FROSTLINE_TRY(const float* qkv, qkv_.use());
    attend_gradient(pass, qkv, probabilities, work.branch_gradient, work.wide_gradient);
    qkv_ = Activation();
    probabilities_ = Activation();
    FROSTLINE_TRY(const float* first_norm, first_norm_.use());
    linear_parameter_gradients(pass, layer.attention_in, first_norm, work.wide_gradient,
                               gradients.attention_in, gradients.attention_in_bias);
    first_norm_ = Activation();
    linear_input_gradient(pass, layer.attention_in, work.wide_gradient, work.branch_gradient);
    FROSTLINE_TRY(const float* input, input_.use());
    norm_gradients(pass, input, w.first_gain, gradients.first_gain, gradients.first_shift);
    input_ = Activation();
    return ok();
}

}  // namespace frostline::train
