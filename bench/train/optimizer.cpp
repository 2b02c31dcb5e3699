// AdamW over a whole slab at once. The corrections for the bias of young moments are computed here
// in double, once a step.
#include "bench/train/optimizer.h"

#include <cmath>

namespace frostline::train {
namespace {

Result<Activation> zeros(std::int64_t count, Device& device, ActivationStore& store) {
    FROSTLINE_TRY(Activation made, Activation::allocate(store, count));
    FROSTLINE_TRY_VOID(device.clear(address_of(made.data()), count * sizeof(float)));
    FROSTLINE_TRY_VOID(made.done());
    return made;
}

}  // namespace

std::int64_t square_sum_count(const ParameterCount& count) {
    return (count.all + kElementsPerSum - 1) / kElementsPerSum;
}

std::int64_t square_sum_count(const ModelShape& shape) {
    return square_sum_count(count_of<EmbeddingTensors>(shape)) +
           shape.layers * square_sum_count(count_of<BlockTensors>(shape)) +
           square_sum_count(count_of<HeadTensors>(shape));
}

Result<ParameterGroup> ParameterGroup::create(const ParameterCount& count,
                                              std::span<const float> initial, Device& device,
                                              DeviceBuffers& buffers, ActivationStore& states) {
    ParameterGroup group;
    group.count_ = count;
    group.states_ = &states;
    FROSTLINE_TRY(group.weights_, buffers.allocate<float>(count.all));
    FROSTLINE_TRY_VOID(device.upload(address_of(group.weights_), std::as_bytes(initial)));
    FROSTLINE_TRY(group.first_moment_, zeros(count.all, device, states));
    FROSTLINE_TRY(group.second_moment_, zeros(count.all, device, states));
    return group;
}

Result<float*> ParameterGroup::begin_gradient() {
    FROSTLINE_TRY(gradient_, Activation::allocate(*states_, count_.all));
    return gradient_.data();
}

Result<void> ParameterGroup::finish_gradient(Launches& launch, float* square_sums) {
    launch.run(
        SquareSumsArguments{.input = gradient_.data(), .result = square_sums, .count = count_.all});
    return gradient_.done();
}

void ParameterGroup::prefetch() const noexcept {
    gradient_.prefetch();
    first_moment_.prefetch();
    second_moment_.prefetch();
}

Result<void> ParameterGroup::update(Launches& launch, const OptimizerSettings& settings, int step,
                                    const float* clip_scale) {
    FROSTLINE_TRY(const float* gradient, gradient_.use());
    FROSTLINE_TRY(float* first, first_moment_.use(Access::write));
    FROSTLINE_TRY(float* second, second_moment_.use(Access::write));
    const auto correction = [step](float beta) {
        return static_cast<float>(1.0 - std::pow(static_cast<double>(beta), step));
    };
    launch.run(AdamwArguments{.weights = weights_,
                              .gradient = gradient,
                              .first_moment = first,
                              .second_moment = second,
                              .clip_scale = clip_scale,
                              .count = count_.all,
                              .decayed_count = count_.decayed,
                              .learning_rate = settings.learning_rate,
                              .beta1 = settings.beta1,
                              .beta2 = settings.beta2,
                              .first_correction = correction(settings.beta1),
                              .second_correction = correction(settings.beta2),
                              .epsilon = settings.epsilon,
                              .decay = settings.decay});
    gradient_ = Activation();
    FROSTLINE_TRY_VOID(first_moment_.done());
    return second_moment_.done();
}

}  // namespace frostline::train
