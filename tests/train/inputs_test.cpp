// Batches and initial weights follow from their seeds alone.
#include "bench/train/counter_random.h"
#include "bench/train/parameters.h"
#include "tests/train/model_fixture.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace frostline::train {
namespace {

TEST(TextBatches, TargetsFollowTokensInTheText) {
    const std::string text = sample_text();
    const Batch batch = sample_batches(kSmallShape).at(3);
    ASSERT_EQ(batch.tokens.size(), static_cast<std::size_t>(kSmallShape.rows()));
    for (int sequence = 0; sequence < kSmallShape.batch; ++sequence) {
        const auto first = batch.tokens.begin() + sequence * kSmallShape.context;
        const std::string words(first, first + kSmallShape.context);
        const auto next = batch.targets.begin() + sequence * kSmallShape.context;
        const std::string following(next, next + kSmallShape.context);
        EXPECT_EQ(words.substr(1), following.substr(0, following.size() - 1));
        EXPECT_NE(text.find(words + following.back()), std::string::npos) << words;
    }
}

TEST(TextBatches, StepsDifferAndRepeat) {
    const TextBatches batches = sample_batches(kSmallShape);
    EXPECT_EQ(batches.at(1).tokens, sample_batches(kSmallShape).at(1).tokens);
    EXPECT_NE(batches.at(1).tokens, batches.at(2).tokens);
}

TEST(TextBatches, RowsAreListedByTokenInOrder) {
    const Batch batch = sample_batches(kSmallShape).at(1);
    ASSERT_EQ(batch.starts.size(), ModelShape::kVocabulary + 1U);
    EXPECT_EQ(batch.starts.front(), 0);
    EXPECT_EQ(batch.starts.back(), kSmallShape.rows());
    for (int token = 0; token < ModelShape::kVocabulary; ++token) {
        for (int at = batch.starts[token]; at < batch.starts[token + 1]; ++at) {
            EXPECT_EQ(batch.tokens[batch.sorted_rows[at]], token);
            if (at > batch.starts[token]) {
                EXPECT_LT(batch.sorted_rows[at - 1], batch.sorted_rows[at]);
            }
        }
    }
}

TEST(TextBatches, ATextMustHoldOneSequence) {
    const std::string exact(kSmallShape.context + 1, '\xff');
    const auto made = TextBatches::create(exact, kSmallShape, 1);
    ASSERT_TRUE(made);
    EXPECT_EQ(made->at(1).targets.back(), 255);
    const auto refused = TextBatches::create(exact.substr(1), kSmallShape, 1);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), Errc::invalid_argument);
    const auto missing = TextBatches::open("no such text", kSmallShape, 1);
    ASSERT_FALSE(missing);
    EXPECT_EQ(missing.error().code(), Errc::not_found);
}

TEST(InitialWeights, AreTheSameOnEveryMachine) {
    // Computed apart from this code: whoever changes them changes every loss.
    EXPECT_EQ(random_bits(1, 0), 0xF4A90164C4749E1AU);
    EXPECT_EQ(random_bits(7, 1000), 0x8E3B88D7C1D37DAFU);
    EXPECT_EQ(random_normal(1, 0), 0x1.32f734p-1F);
    EXPECT_EQ(random_normal(7, 1000), 0x1.2bf156p-1F);
}

TEST(InitialWeights, AreNearNormalAndDiffer) {
    constexpr int kCount = 20000;
    double sum = 0.0;
    double squares = 0.0;
    std::set<float> different;
    for (int i = 0; i < kCount; ++i) {
        const double value = random_normal(9, i);
        sum += value;
        squares += value * value;
        different.insert(static_cast<float>(value));
    }
    EXPECT_NEAR(sum / kCount, 0.0, 0.03);
    EXPECT_NEAR(squares / kCount, 1.0, 0.03);
    EXPECT_GT(different.size(), kCount / 2U);
}

TEST(InitialWeights, GainsAreOneAndShiftsZero) {
    const auto groups = initial_weights(kSmallShape, 1);
    ASSERT_EQ(groups.size(), 2U + kSmallShape.layers);
    const auto block = tensors_in<BlockTensors>(kSmallShape, groups[1].data());
    EXPECT_EQ(block.first_gain[0], 1.0F);
    EXPECT_EQ(block.second_gain[kSmallShape.width - 1], 1.0F);
    EXPECT_EQ(block.second_shift[kSmallShape.width - 1], 0.0F);
    EXPECT_EQ(block.mlp_in_bias[0], 0.0F);
    EXPECT_NE(groups[1], groups[2]);
}

}  // namespace
}  // namespace frostline::train
