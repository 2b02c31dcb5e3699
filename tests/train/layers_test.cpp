// Each layer forward against the double reference, and backward against central differences of it.
#include "bench/train/attention.h"
#include "tests/train/layer_fixture.h"

namespace frostline::train {
namespace {

using reference::dot;
using reference::Values;

class LayersTest : public LayerTest {};

TEST_P(LayersTest, LinearAndItsGradients) {
    const int in = shape_.width;
    const int out = 3 * shape_.width;
    const std::int64_t rows = shape_.rows();
    Values input = random(rows * in);
    Values weights = random(std::int64_t{in} * out);
    Values bias = random(out);
    const Values add = random(rows * out);
    const Values toward = random(rows * out);
    const Linear layer{tensors_.put(weights), tensors_.put(bias), in, out};
    const float* input_place = tensors_.put(input);
    const float* toward_place = tensors_.put(toward);
    float* result = tensors_.make(rows * out);
    float* weights_gradient = tensors_.make(weights.size());
    float* bias_gradient = tensors_.make(bias.size());
    float* input_gradient = tensors_.make(input.size());
    linear(pass(), layer, input_place, tensors_.put(add), result);
    linear_parameter_gradients(pass(), layer, input_place, toward_place, weights_gradient,
                               bias_gradient);
    linear_input_gradient(pass(), layer, toward_place, input_gradient);
    expect_launched();

    Values expected = reference::linear(input, weights, bias, in, out);
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += add[i];
    expect_near(tensors_.get(result, expected.size()), expected, "result");
    const auto along = [&] {
        return dot(reference::linear(input, weights, bias, in, out), toward);
    };
    expect_gradient(tensors_.get(weights_gradient, weights.size()), weights, along, "weights");
    expect_gradient(tensors_.get(bias_gradient, bias.size()), bias, along, "bias");
    expect_gradient(tensors_.get(input_gradient, input.size()), input, along, "input");
}

TEST_P(LayersTest, NormAndItsGradients) {
    Values input = random(shape_.row_elements());
    Values gain = random(shape_.width);
    Values shift = random(shape_.width);
    const Values toward = random(shape_.row_elements());
    const Values past = random(shape_.row_elements());
    const float* input_place = tensors_.put(input);
    const float* gain_place = tensors_.put(gain);
    float* result = tensors_.make(input.size());
    float* gain_gradient = tensors_.make(gain.size());
    float* shift_gradient = tensors_.make(shift.size());
    norm(pass(), input_place, gain_place, tensors_.put(shift), result);
    tensors_.write(work_.branch_gradient, toward);
    tensors_.write(work_.residual_gradient, past);
    norm_gradients(pass(), input_place, gain_place, gain_gradient, shift_gradient);
    expect_launched();

    // With one column the norm is shift, exactly, and float divides what is left of nothing.
    const double tolerance = 20 * kTolerance;
    expect_near(tensors_.get(result, input.size()), reference::layer_norm(input, gain, shift),
                "result", tolerance);
    const auto along = [&] { return dot(reference::layer_norm(input, gain, shift), toward); };
    expect_gradient(tensors_.get(gain_gradient, gain.size()), gain, along, "gain", tolerance);
    expect_gradient(tensors_.get(shift_gradient, shift.size()), shift, along, "shift", tolerance);
    Values input_gradient = tensors_.get(work_.residual_gradient, input.size());
    for (std::size_t i = 0; i < past.size(); ++i) input_gradient[i] -= past[i];
    expect_gradient(input_gradient, input, along, "input", tolerance);
}

TEST_P(LayersTest, AttentionAndItsGradient) {
    Values qkv = random(3 * shape_.row_elements());
    const Values toward = random(shape_.row_elements());
    const float* qkv_place = tensors_.put(qkv);
    float* probabilities = tensors_.make(shape_.attention_elements());
    float* result = tensors_.make(toward.size());
    float* gradient = tensors_.make(qkv.size());
    attend(pass(), qkv_place, probabilities, result);
    attend_gradient(pass(), qkv_place, probabilities, tensors_.put(toward), gradient);
    expect_launched();

    expect_near(tensors_.get(result, toward.size()), reference::attention(qkv, shape_), "result");
    const auto along = [&] { return dot(reference::attention(qkv, shape_), toward); };
    expect_gradient(tensors_.get(gradient, qkv.size()), qkv, along, "queries, keys, values");
}

TEST_P(LayersTest, ProbabilitiesAreCausalAndSumToOne) {
    const float* qkv = tensors_.put(random(3 * shape_.row_elements()));
    float* probabilities = tensors_.make(shape_.attention_elements());
    attend(pass(), qkv, probabilities, tensors_.make(shape_.row_elements()));
    expect_launched();
    const Values found = tensors_.get(probabilities, shape_.attention_elements());
    for (std::size_t row = 0; row < found.size() / shape_.context; ++row) {
        const auto seen = static_cast<int>(row % shape_.context);
        double sum = 0.0;
        for (int i = 0; i < shape_.context; ++i) {
            const double value = found[row * shape_.context + i];
            sum += value;
            if (i > seen) {
                ASSERT_EQ(value, 0.0) << "row " << row << ", column " << i;
            }
        }
        ASSERT_NEAR(sum, 1.0, 1e-6) << "row " << row;
    }
}

TEST_P(LayersTest, GeluAndItsGradient) {
    // From far on one side, where it is zero, to far on the other, where it is the identity.
    Values input;
    for (std::int64_t i = 0; i < shape_.row_elements() + 3; ++i) {
        input.push_back(static_cast<double>(i % 97) / 8.0 - 6.0);
    }
    const Values toward = random(static_cast<std::int64_t>(input.size()));
    const auto count = static_cast<std::int64_t>(input.size());
    const float* input_place = tensors_.put(input);
    float* result = tensors_.make(count);
    float* gradient = tensors_.put(toward);
    launch_.run(GeluArguments{.input = input_place, .result = result, .count = count});
    launch_.run(GeluGradientArguments{.input = input_place, .gradient = gradient, .count = count});
    expect_launched();
    expect_near(tensors_.get(result, count), reference::gelu(input), "result");
    const auto along = [&] { return dot(reference::gelu(input), toward); };
    expect_gradient(tensors_.get(gradient, count), input, along, "input");
}

TEST_P(LayersTest, CrossEntropyAndItsGradient) {
    const int classes = shape_.width + 2;
    Values logits = random(std::int64_t{shape_.rows()} * classes);
    std::vector<std::int32_t> targets;
    for (int row = 0; row < shape_.rows(); ++row) targets.push_back(row * 7 % classes);
    float* losses = tensors_.make(shape_.rows());
    float* gradient = tensors_.make(logits.size());
    launch_.run(CrossEntropyArguments{.logits = tensors_.put(logits),
                                      .targets = tensors_.put(targets),
                                      .losses = losses,
                                      .gradient = gradient,
                                      .rows = shape_.rows(),
                                      .classes = classes});
    expect_launched();
    double mean = 0.0;
    for (const double loss : tensors_.get(losses, shape_.rows())) mean += loss / shape_.rows();
    const auto f = [&] { return reference::cross_entropy(logits, targets); };
    EXPECT_NEAR(mean, f(), 1e-5);
    expect_gradient(tensors_.get(gradient, logits.size()), logits, f, "logits");
}

TEST_P(LayersTest, HugeLogitsAndScoresOverflowNothing) {
    const Values logits{1e4, -1e4, 3e38, 0.0};
    float* losses = tensors_.make(1);
    float* gradient = tensors_.make(logits.size());
    launch_.run(CrossEntropyArguments{.logits = tensors_.put(logits),
                                      .targets = tensors_.put(std::vector<std::int32_t>{2}),
                                      .losses = losses,
                                      .gradient = gradient,
                                      .rows = 1,
                                      .classes = 4});
    float* scores = tensors_.put(Values{0.0, 0.0, 3e38, -3e38});
    launch_.run(CausalSoftmaxArguments{.scores = scores, .rows = 2, .context = 2});
    expect_launched();
    EXPECT_EQ(tensors_.get(losses, 1)[0], 0.0);
    EXPECT_EQ(tensors_.get(gradient, 4), (Values{0.0, 0.0, 0.0, 0.0}));
    EXPECT_EQ(tensors_.get(scores, 4), (Values{1.0, 0.0, 1.0, 0.0}));
}

TEST_P(LayersTest, EmbeddingAndItsGradients) {
    const auto text =
        TextBatches::create(std::string(shape_.context + 9, 'a') + "\xff zb", shape_, 3);
    ASSERT_TRUE(text) << text.error().message();
    const Batch batch = text->at(1);
    const int width = shape_.width;
    Values token = random(std::int64_t{ModelShape::kVocabulary} * width);
    Values position = random(std::int64_t{shape_.context} * width);
    const Values toward = random(shape_.row_elements());
    const auto f = [&] {
        Values result;
        for (std::size_t row = 0; row < batch.tokens.size(); ++row) {
            for (int i = 0; i < width; ++i) {
                result.push_back(token[batch.tokens[row] * width + i] +
                                 position[row % shape_.context * width + i]);
            }
        }
        return result;
    };
    float* result = tensors_.make(toward.size());
    float* token_gradient = tensors_.make(token.size());
    float* position_gradient = tensors_.make(position.size());
    const float* toward_place = tensors_.put(toward);
    launch_.run(EmbedArguments{.tokens = tensors_.put(batch.tokens),
                               .token = tensors_.put(token),
                               .position = tensors_.put(position),
                               .result = result,
                               .rows = shape_.rows(),
                               .context = shape_.context,
                               .width = width});
    launch_.run(EmbedTokenGradientArguments{.starts = tensors_.put(batch.starts),
                                            .sorted_rows = tensors_.put(batch.sorted_rows),
                                            .gradient = toward_place,
                                            .result = token_gradient,
                                            .vocabulary = ModelShape::kVocabulary,
                                            .width = width});
    launch_.run(EmbedPositionGradientArguments{.gradient = toward_place,
                                               .result = position_gradient,
                                               .batch = shape_.batch,
                                               .context = shape_.context,
                                               .width = width});
    expect_launched();
    expect_near(tensors_.get(result, toward.size()), f(), "result");
    const auto along = [&] { return dot(f(), toward); };
    const Values found = tensors_.get(token_gradient, token.size());
    expect_gradient(found, token, along, "token");
    expect_gradient(tensors_.get(position_gradient, position.size()), position, along, "position");
    // The samples above may miss the few rows that are not zero.
    const std::size_t used = static_cast<std::size_t>(batch.tokens[0]) * width;
    EXPECT_NEAR(found[used], reference::central_difference(token, used, along), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Shapes, LayersTest, ::testing::ValuesIn(test_shapes()));

}  // namespace
}  // namespace frostline::train
