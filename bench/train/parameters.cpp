// One stream of random numbers runs through all weights, so that each has a number of its own.
#include "bench/train/parameters.h"

#include "bench/train/counter_random.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace frostline::train {
namespace {

constexpr float kDeviation = 0.02F;

class WeightSource {
   public:
    explicit WeightSource(std::uint64_t seed) : seed_(seed) {}

    void fill(float* weights, std::int64_t count, float deviation) {
        for (std::int64_t i = 0; i < count; ++i) {
            weights[i] = random_normal(seed_, next_++) * deviation;
        }
    }

   private:
    std::uint64_t seed_;
    std::uint64_t next_ = 0;
};

std::vector<float> block_weights(const ModelShape& shape, WeightSource& source) {
    const ParameterCount count = count_of<BlockTensors>(shape);
    std::vector<float> slab(count.all, 0.0F);
    const auto tensors = tensors_in<BlockTensors>(shape, slab.data());
    source.fill(slab.data(), count.decayed, kDeviation);
    // 2 * layers matrices add to the residual stream; together they are to add as much as one.
    const float share = 1.0F / std::sqrt(2.0F * static_cast<float>(shape.layers));
    const auto shrink = [share](float* weights, std::int64_t size) {
        for (float& weight : std::span(weights, size)) weight *= share;
    };
    shrink(tensors.attention_out, std::int64_t{shape.width} * shape.width);
    shrink(tensors.mlp_out, std::int64_t{shape.mlp_width()} * shape.width);
    std::fill_n(tensors.first_gain, shape.width, 1.0F);
    std::fill_n(tensors.second_gain, shape.width, 1.0F);
    return slab;
}

}  // namespace

std::vector<std::vector<float>> initial_weights(const ModelShape& shape, std::uint64_t seed) {
    WeightSource source(seed);
    std::vector<std::vector<float>> groups;
    std::vector<float> embedding(count_of<EmbeddingTensors>(shape).all);
    source.fill(embedding.data(), static_cast<std::int64_t>(embedding.size()), kDeviation);
    groups.push_back(std::move(embedding));
    for (int layer = 0; layer < shape.layers; ++layer) {
        groups.push_back(block_weights(shape, source));
    }
    const ParameterCount count = count_of<HeadTensors>(shape);
    std::vector<float> head(count.all, 0.0F);
    source.fill(head.data(), count.decayed, kDeviation);
    std::fill_n(tensors_in<HeadTensors>(shape, head.data()).gain, shape.width, 1.0F);
    groups.push_back(std::move(head));
    return groups;
}

}  // namespace frostline::train
