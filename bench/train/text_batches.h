// Batches of a text, byte by byte. The batch of a step follows from seed and step alone.
#pragma once

#include "bench/train/model_shape.h"

#include <cstdint>
#include <string>
#include <vector>

namespace frostline::train {

/// One batch as the kernels take it.
struct Batch {
    std::vector<std::int32_t> tokens;
    std::vector<std::int32_t> targets;  ///< for each token the one that follows
    std::vector<std::int32_t> starts;   ///< see EmbedTokenGradientArguments
    std::vector<std::int32_t> sorted_rows;
};

class TextBatches {
   public:
    /// Errors: not_found, io, and invalid_argument if the file is too short for one sequence.
    static Result<TextBatches> open(const std::string& path, const ModelShape& shape,
                                    std::uint64_t seed);
    /// Errors: invalid_argument if the text is too short for one sequence.
    static Result<TextBatches> create(std::string text, const ModelShape& shape,
                                      std::uint64_t seed);

    Batch at(int step) const;

   private:
    TextBatches(std::string text, const ModelShape& shape, std::uint64_t seed)
        : text_(std::move(text)), shape_(shape), seed_(seed) {}

    std::string text_;
    ModelShape shape_;
    std::uint64_t seed_;
};

}  // namespace frostline::train
