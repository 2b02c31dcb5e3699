// The whole model: its loss against the double reference, and its gradient, of every parameter
// tensor, against central differences of that reference.
#include "tests/train/model_fixture.h"
#include "tests/train/reference.h"

#include <algorithm>
#include <cmath>

namespace frostline::train {
namespace {

using reference::Values;

// Weights larger than those that training starts with: attention that is nearly uniform and norms
// whose parameters are all alike would hide mistakes.
std::vector<Values> lively_weights(const ModelShape& shape) {
    std::vector<Values> groups;
    std::uint64_t seed = 77;
    for (const auto& initial : initial_weights(shape, 1)) {
        Values weights = reference::random_values(initial.size(), ++seed);
        for (std::size_t i = 0; i < weights.size(); ++i) {
            weights[i] = static_cast<float>(0.5 * weights[i] + (initial[i] == 1.0F ? 1.0 : 0.0));
        }
        groups.push_back(std::move(weights));
    }
    return groups;
}

// Where a group's tensors begin, and where the last one ends.
std::vector<std::size_t> bounds(const ModelShape& shape, std::size_t group, std::size_t size) {
    const float* slab = nullptr;
    std::vector<float> memory(size);
    slab = memory.data();
    std::vector<const float*> places;
    if (group == 0) {
        const auto t = tensors_in<EmbeddingTensors>(shape, slab);
        places = {t.token, t.position};
    } else if (group <= static_cast<std::size_t>(shape.layers)) {
        const auto t = tensors_in<BlockTensors>(shape, slab);
        places = {t.attention_in,      t.attention_out,      t.mlp_in,      t.mlp_out,
                  t.attention_in_bias, t.attention_out_bias, t.mlp_in_bias, t.mlp_out_bias,
                  t.first_gain,        t.first_shift,        t.second_gain, t.second_shift};
    } else {
        const auto t = tensors_in<HeadTensors>(shape, slab);
        places = {t.output, t.gain, t.shift};
    }
    std::vector<std::size_t> result;
    for (const float* place : places) result.push_back(place - slab);
    result.push_back(size);
    return result;
}

class ModelGradientTest : public ::testing::TestWithParam<ModelShape> {
   protected:
    void SetUp() override {
        for (std::size_t i = 0; i < weights_.size(); ++i) {
            const std::vector<float> floats(weights_[i].begin(), weights_[i].end());
            ASSERT_TRUE(device_.upload(address_of(model_->groups()[i]->weights()),
                                       std::as_bytes(std::span(floats))));
        }
    }

    ModelShape shape_ = GetParam();
    HostDevice device_;
    PlainStore store_{device_};
    std::unique_ptr<Model> model_ = make_model(shape_, device_, {store_, store_});
    std::vector<Values> weights_ = lively_weights(shape_);
    Batch batch_ = sample_batches(shape_).at(1);
};

// The forward pass has some hundred roundings in a row, the backward pass twice as many, each of
// 6e-8 of values that cancel in part: 1e-4 of the largest gradient of the same tensor.
constexpr double kModelTolerance = 1e-4;

TEST_P(ModelGradientTest, LossAndGradientsAreThoseOfTheReference) {
    const auto loss = model_->gradients(batch_);
    ASSERT_TRUE(loss) << loss.error().message();
    const auto f = [&] { return reference::loss(weights_, batch_, shape_); };
    EXPECT_NEAR(*loss, f(), 1e-5 * f());
    for (std::size_t group = 0; group < weights_.size(); ++group) {
        Activation& gradient = model_->groups()[group]->gradient();
        const auto place = gradient.use();
        ASSERT_TRUE(place);
        const auto found =
            model_->download(*place, static_cast<std::int64_t>(weights_[group].size()));
        ASSERT_TRUE(found);
        ASSERT_TRUE(gradient.done());
        const std::vector<std::size_t> ends = bounds(shape_, group, weights_[group].size());
        for (std::size_t tensor = 0; tensor + 1 < ends.size(); ++tensor) {
            const std::size_t first = ends[tensor];
            const std::size_t count = ends[tensor + 1] - first;
            double largest = 1e-4;
            for (std::size_t i = 0; i < count; ++i) {
                largest = std::max(largest, std::fabs(double{(*found)[first + i]}));
            }
            for (const std::size_t i : reference::some_indices(count, 6)) {
                const double expected =
                    reference::central_difference(weights_[group], first + i, f);
                EXPECT_NEAR((*found)[first + i], expected, kModelTolerance * largest)
                    << "group " << group << ", tensor " << tensor << ", element " << i;
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, ModelGradientTest,
    ::testing::Values(kSmallShape,
                      ModelShape{.layers = 1, .width = 8, .heads = 2, .context = 9, .batch = 9}));

TEST(CausalMask, TheFutureChangesNoEarlierLoss) {
    const ModelShape shape = kSmallShape;
    HostDevice device;
    PlainStore store(device);
    const auto model = make_model(shape, device, {store, store});
    Batch batch = sample_batches(shape).at(1);
    // Per row, which the mean would hide: where the losses lie is found by their mean.
    const auto loss_of_prefix = [&](int seen) {
        Batch cut = batch;
        for (int row = 0; row < shape.rows(); ++row) {
            if (row % shape.context >= seen) cut.tokens[row] = 'X' + row % 3;
        }
        return cut;
    };
    constexpr int kSeen = 5;
    const Batch changed = loss_of_prefix(kSeen);
    ASSERT_NE(changed.tokens, batch.tokens);
    const auto losses = [&](const Batch& which) {
        EXPECT_TRUE(model->gradients(which));
        const auto found = model->losses();
        EXPECT_TRUE(found);
        return *found;
    };
    const std::vector<float> before = losses(batch);
    const std::vector<float> after = losses(changed);
    int different = 0;
    for (int row = 0; row < shape.rows(); ++row) {
        if (row % shape.context < kSeen) {
            EXPECT_EQ(before[row], after[row]) << "row " << row;
        } else {
            different += before[row] != after[row] ? 1 : 0;
        }
    }
    EXPECT_GT(different, 0);
}

}  // namespace
}  // namespace frostline::train
