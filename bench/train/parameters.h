// How parameters lie in memory: each group (the embedding, a block, the head) is one slab, so that
// its weights, its gradient and its optimizer states are one tensor each. Matrices come first in
// a slab, because they decay and vectors do not.
#pragma once

#include "bench/train/model_shape.h"

#include <cstdint>
#include <vector>

namespace frostline::train {

struct ParameterCount {
    std::int64_t all;
    std::int64_t decayed;  ///< the first so many are matrices
};

template <class T>
struct EmbeddingTensors {
    T* token;     ///< vocabulary x width
    T* position;  ///< context x width
};

/// The matrices are in x out.
template <class T>
struct BlockTensors {
    T* attention_in;   ///< width x 3 width: queries, keys, values
    T* attention_out;  ///< width x width
    T* mlp_in;         ///< width x mlp_width
    T* mlp_out;        ///< mlp_width x width
    T* attention_in_bias;
    T* attention_out_bias;
    T* mlp_in_bias;
    T* mlp_out_bias;
    T* first_gain;
    T* first_shift;
    T* second_gain;
    T* second_shift;
};

template <class T>
struct HeadTensors {
    T* output;  ///< width x vocabulary
    T* gain;
    T* shift;
};

/// Hands out a slab from its start; without a slab it only counts.
template <class T>
class SlabCursor {
   public:
    explicit SlabCursor(T* slab) : slab_(slab) {}

    T* take(std::int64_t count) {
        T* place = slab_ == nullptr ? nullptr : slab_ + taken_;
        taken_ += count;
        return place;
    }
    std::int64_t taken() const { return taken_; }

   private:
    T* slab_;
    std::int64_t taken_ = 0;
};

template <class T>
ParameterCount lay_out(const ModelShape& shape, T* slab, EmbeddingTensors<T>& tensors) {
    SlabCursor<T> cursor(slab);
    tensors.token = cursor.take(std::int64_t{ModelShape::kVocabulary} * shape.width);
    tensors.position = cursor.take(std::int64_t{shape.context} * shape.width);
    return {cursor.taken(), cursor.taken()};
}

template <class T>
ParameterCount lay_out(const ModelShape& shape, T* slab, BlockTensors<T>& tensors) {
    SlabCursor<T> cursor(slab);
    const std::int64_t width = shape.width;
    const std::int64_t mlp_width = shape.mlp_width();
    tensors.attention_in = cursor.take(width * 3 * width);
    tensors.attention_out = cursor.take(width * width);
    tensors.mlp_in = cursor.take(width * mlp_width);
    tensors.mlp_out = cursor.take(mlp_width * width);
    const std::int64_t decayed = cursor.taken();
    tensors.attention_in_bias = cursor.take(3 * width);
    tensors.attention_out_bias = cursor.take(width);
    tensors.mlp_in_bias = cursor.take(mlp_width);
    tensors.mlp_out_bias = cursor.take(width);
    tensors.first_gain = cursor.take(width);
    tensors.first_shift = cursor.take(width);
    tensors.second_gain = cursor.take(width);
    tensors.second_shift = cursor.take(width);
    return {cursor.taken(), decayed};
}

template <class T>
ParameterCount lay_out(const ModelShape& shape, T* slab, HeadTensors<T>& tensors) {
    SlabCursor<T> cursor(slab);
    tensors.output = cursor.take(std::int64_t{shape.width} * ModelShape::kVocabulary);
    const std::int64_t decayed = cursor.taken();
    tensors.gain = cursor.take(shape.width);
    tensors.shift = cursor.take(shape.width);
    return {cursor.taken(), decayed};
}

/// The places of a group's tensors in its slab.
template <template <class> class Tensors, class T>
Tensors<T> tensors_in(const ModelShape& shape, T* slab) {
    Tensors<T> tensors{};
    (void)lay_out(shape, slab, tensors);
    return tensors;
}

template <template <class> class Tensors>
ParameterCount count_of(const ModelShape& shape) {
    Tensors<float> tensors{};
    return lay_out<float>(shape, nullptr, tensors);
}

/// Initial weights of each group, in the order embedding, blocks, head: near-normal with deviation
/// 0.02, smaller where a matrix adds to the residual stream; gains 1, shifts and biases 0. They
/// follow from the seed alone, bit by bit, on every machine.
std::vector<std::vector<float>> initial_weights(const ModelShape& shape, std::uint64_t seed);

}  // namespace frostline::train
