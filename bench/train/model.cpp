// The order of everything is fixed: groups, sums of squares, updates.
#include "bench/train/model.h"

#include <numeric>

namespace frostline::train {

Result<std::unique_ptr<Model>> Model::create(const ModelShape& shape, std::uint64_t seed,
                                             Device& device, const Stores& stores) {
    FROSTLINE_TRY_VOID(shape.check());
    std::unique_ptr<Model> model(new Model(shape, device, stores));
    FROSTLINE_TRY(model->work_, Workspace::create(shape, model->buffers_));
    const std::vector<std::vector<float>> initial = initial_weights(shape, seed);
    const auto group = [&](const ParameterCount& count, const std::vector<float>& weights) {
        return ParameterGroup::create(count, weights, device, model->buffers_, stores.states);
    };
    FROSTLINE_TRY(model->embedding_, group(count_of<EmbeddingTensors>(shape), initial.front()));
    for (int layer = 0; layer < shape.layers; ++layer) {
        FROSTLINE_TRY(auto parameters, group(count_of<BlockTensors>(shape), initial[layer + 1]));
        model->blocks_.emplace_back(std::move(parameters));
    }
    FROSTLINE_TRY(model->head_, group(count_of<HeadTensors>(shape), initial.back()));
    return model;
}

Result<double> Model::step(const Batch& batch, const OptimizerSettings& settings, int number) {
    FROSTLINE_TRY_VOID(upload(batch));
    FROSTLINE_TRY_VOID(forward());
    FROSTLINE_TRY_VOID(backward());
    FROSTLINE_TRY_VOID(update(settings, number));
    return mean_loss();
}

Result<double> Model::gradients(const Batch& batch) {
    FROSTLINE_TRY_VOID(upload(batch));
    FROSTLINE_TRY_VOID(forward());
    FROSTLINE_TRY_VOID(backward());
    return mean_loss();
}

std::vector<ParameterGroup*> Model::groups() {
    std::vector<ParameterGroup*> groups{&embedding_};
    for (Block& block : blocks_) groups.push_back(&block.parameters());
    groups.push_back(&head_);
    return groups;
}

Result<std::vector<float>> Model::download(const float* from, std::int64_t count) {
    std::vector<float> values(count);
    FROSTLINE_TRY_VOID(
        device_.download(std::as_writable_bytes(std::span(values)), address_of(from)));
    return values;
}

Result<void> Model::upload(const Batch& batch) {
    const auto send = [&](std::int32_t* to, const std::vector<std::int32_t>& from) {
        return device_.upload(address_of(to), std::as_bytes(std::span(from)));
    };
    FROSTLINE_TRY_VOID(send(work_.tokens, batch.tokens));
    FROSTLINE_TRY_VOID(send(work_.targets, batch.targets));
    FROSTLINE_TRY_VOID(send(work_.token_starts, batch.starts));
    return send(work_.sorted_rows, batch.sorted_rows);
}

Result<void> Model::forward() {
    const auto weights = tensors_in<EmbeddingTensors>(shape_, embedding_.weights());
    FROSTLINE_TRY(Activation residual,
                  Activation::allocate(stores_.activations, shape_.row_elements()));
    launch_.run(EmbedArguments{.tokens = work_.tokens,
                               .token = weights.token,
                               .position = weights.position,
                               .result = residual.data(),
                               .rows = shape_.rows(),
                               .context = shape_.context,
                               .width = shape_.width});
    for (Block& block : blocks_) {
        FROSTLINE_TRY(residual, block.forward(pass(), std::move(residual)));
    }
    return forward_head(std::move(residual));
}

Result<void> Model::forward_head(Activation residual) {
    const auto weights = tensors_in<HeadTensors>(shape_, head_.weights());
    last_residual_ = std::move(residual);
    FROSTLINE_TRY(last_norm_, Activation::allocate(stores_.activations, shape_.row_elements()));
    norm(pass(), last_residual_.data(), weights.gain, weights.shift, last_norm_.data());
    FROSTLINE_TRY_VOID(last_residual_.done());
    linear(pass(), {weights.output, nullptr, shape_.width, ModelShape::kVocabulary},
           last_norm_.data(), nullptr, work_.logits);
    FROSTLINE_TRY_VOID(last_norm_.done());
    launch_.run(CrossEntropyArguments{.logits = work_.logits,
                                      .targets = work_.targets,
                                      .losses = work_.losses,
                                      .gradient = work_.logits_gradient,
                                      .rows = shape_.rows(),
                                      .classes = ModelShape::kVocabulary});
    return ok();
}

Result<void> Model::backward() {
    float* square_sums = work_.square_sums;
    FROSTLINE_TRY_VOID(backward_head(square_sums));
    square_sums += square_sum_count(count_of<HeadTensors>(shape_));
    for (std::size_t layer = blocks_.size(); layer-- > 0;) {
        // One block ahead of the kernels, which are only being queued here.
        if (layer > 0) blocks_[layer - 1].prefetch();
        FROSTLINE_TRY_VOID(blocks_[layer].backward(pass(), square_sums));
        square_sums += square_sum_count(count_of<BlockTensors>(shape_));
    }
    return backward_embedding(square_sums);
}

Result<void> Model::backward_head(float* square_sums) {
    const auto weights = tensors_in<HeadTensors>(shape_, head_.weights());
    const Linear output{weights.output, nullptr, shape_.width, ModelShape::kVocabulary};
    blocks_.back().prefetch();
    FROSTLINE_TRY(float* slab, head_.begin_gradient());
    const auto gradients = tensors_in<HeadTensors>(shape_, slab);
    FROSTLINE_TRY(const float* last_norm, last_norm_.use());
    linear_parameter_gradients(pass(), output, last_norm, work_.logits_gradient, gradients.output,
                               nullptr);
    last_norm_ = Activation();
    linear_input_gradient(pass(), output, work_.logits_gradient, work_.branch_gradient);
    // Nothing flows past the last norm.
    FROSTLINE_TRY_VOID(
        device_.clear(address_of(work_.residual_gradient), shape_.row_elements() * sizeof(float)));
    FROSTLINE_TRY(const float* last_residual, last_residual_.use());
    norm_gradients(pass(), last_residual, weights.gain, gradients.gain, gradients.shift);
    last_residual_ = Activation();
    return head_.finish_gradient(launch_, square_sums);
}

Result<void> Model::backward_embedding(float* square_sums) {
    FROSTLINE_TRY(float* slab, embedding_.begin_gradient());
    const auto gradients = tensors_in<EmbeddingTensors>(shape_, slab);
    launch_.run(EmbedTokenGradientArguments{.starts = work_.token_starts,
                                            .sorted_rows = work_.sorted_rows,
                                            .gradient = work_.residual_gradient,
                                            .result = gradients.token,
                                            .vocabulary = ModelShape::kVocabulary,
                                            .width = shape_.width});
    launch_.run(EmbedPositionGradientArguments{.gradient = work_.residual_gradient,
                                               .result = gradients.position,
                                               .batch = shape_.batch,
                                               .context = shape_.context,
                                               .width = shape_.width});
    return embedding_.finish_gradient(launch_, square_sums);
}

Result<void> Model::update(const OptimizerSettings& settings, int number) {
    launch_.run(ClipScaleArguments{.square_sums = work_.square_sums,
                                   .result = work_.clip_scale,
                                   .count = square_sum_count(shape_),
                                   .most = settings.most_norm});
    const std::vector<ParameterGroup*> all = groups();
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (i + 1 < all.size()) all[i + 1]->prefetch();
        FROSTLINE_TRY_VOID(all[i]->update(launch_, settings, number, work_.clip_scale));
    }
    return ok();
}

Result<std::vector<float>> Model::losses() {
    return download(work_.losses, shape_.rows());
}

Result<double> Model::mean_loss() {
    FROSTLINE_TRY_VOID(launch_.status());
    FROSTLINE_TRY(const std::vector<float> all, losses());
    return std::accumulate(all.begin(), all.end(), 0.0) / shape_.rows();
}

}  // namespace frostline::train
