// AdamW and clipping against the same formulas in double on the host.
#include "bench/train/optimizer.h"
#include "tests/train/layer_fixture.h"

namespace frostline::train {
namespace {

using reference::Values;

// More than one partial sum of squares, and no multiple of anything.
constexpr ParameterCount kCount{.all = 2 * kElementsPerSum + 13, .decayed = 1500};

struct Reference {
    Values weights;
    Values first = Values(kCount.all, 0.0);
    Values second = Values(kCount.all, 0.0);

    void update(const Values& gradient, double clip, const OptimizerSettings& s, int step) {
        for (std::int64_t i = 0; i < kCount.all; ++i) {
            const double g = gradient[i] * clip;
            first[i] = double{s.beta1} * first[i] + (1 - double{s.beta1}) * g;
            second[i] = double{s.beta2} * second[i] + (1 - double{s.beta2}) * g * g;
            const double m = first[i] / (1 - std::pow(double{s.beta1}, step));
            const double v = second[i] / (1 - std::pow(double{s.beta2}, step));
            const double decay = i < kCount.decayed ? double{s.decay} : 0.0;
            weights[i] -= double{s.learning_rate} *
                          (m / (std::sqrt(v) + double{s.epsilon}) + decay * weights[i]);
        }
    }
};

class OptimizerTest : public ::testing::Test {
   protected:
    void SetUp() override {
        const std::vector<float> floats(initial_.begin(), initial_.end());
        auto made = ParameterGroup::create(kCount, floats, device_, buffers_, store_);
        ASSERT_TRUE(made) << made.error().message();
        group_ = std::move(*made);
    }

    // One step with this gradient; the clip scale that the device came to.
    double step(const Values& gradient, const OptimizerSettings& settings, int number) {
        const auto place = group_.begin_gradient();
        EXPECT_TRUE(place);
        tensors_.write(*place, gradient);
        EXPECT_TRUE(group_.finish_gradient(launch_, square_sums_));
        launch_.run(ClipScaleArguments{.square_sums = square_sums_,
                                       .result = clip_,
                                       .count = square_sum_count(kCount),
                                       .most = settings.most_norm});
        EXPECT_TRUE(group_.update(launch_, settings, number, clip_));
        const auto status = launch_.status();
        EXPECT_TRUE(status) << status.error().message();
        return tensors_.get(clip_, 1)[0];
    }

    HostDevice device_;
    DeviceBuffers buffers_{device_};
    PlainStore store_{device_};
    Launches launch_{device_};
    Tensors tensors_{device_};
    Values initial_ = reference::random_values(kCount.all, 1);
    float* square_sums_ = tensors_.make(square_sum_count(kCount));
    float* clip_ = tensors_.make(1);
    ParameterGroup group_;
};

TEST_F(OptimizerTest, FollowsTheFormulasOverManySteps) {
    Reference reference{.weights = initial_};
    const OptimizerSettings settings{.learning_rate = 0.01F};
    for (int number = 1; number <= 12; ++number) {
        Values gradient = reference::random_values(kCount.all, 100 + number);
        // Some below what is clipped, some above; some elements that have no gradient at all.
        for (std::size_t i = 0; i < gradient.size(); ++i) {
            gradient[i] *= i % 10 == 0 ? 0.0 : std::pow(0.25, number % 4);
        }
        const double norm = std::sqrt(reference::dot(gradient, gradient));
        const double expected_clip = norm > settings.most_norm ? settings.most_norm / norm : 1.0;
        const double clip = step(gradient, settings, number);
        EXPECT_NEAR(clip, expected_clip, 1e-6 * expected_clip) << "step " << number;
        reference.update(gradient, expected_clip, settings, number);
    }
    expect_near(tensors_.get(group_.weights(), kCount.all), reference.weights, "weights");
}

TEST_F(OptimizerTest, SmallGradientsAreNotScaled) {
    EXPECT_EQ(step(Values(kCount.all, 1e-6), {}, 1), 1.0);
}

TEST_F(OptimizerTest, WithoutGradientOnlyMatricesDecay) {
    const OptimizerSettings settings{.learning_rate = 0.5F, .decay = 0.5F};
    EXPECT_EQ(step(Values(kCount.all, 0.0), settings, 1), 1.0);
    Values expected = initial_;
    for (std::int64_t i = 0; i < kCount.decayed; ++i) expected[i] *= 0.75;
    EXPECT_EQ(tensors_.get(group_.weights(), kCount.all), expected);
}

}  // namespace
}  // namespace frostline::train
