// The sizes of a model, and what memory follows from them. Everything else asks here.
#pragma once

#include "tiers/result.h"

#include <cstdint>

namespace frostline::train {

/// A byte-level transformer and the batch that it is trained on.
struct ModelShape {
    int layers = 4;
    int width = 128;
    int heads = 4;
    int context = 128;
    int batch = 8;

    static constexpr int kVocabulary = 256;
    static constexpr int kMlpFactor = 4;
    /// Rows that one thread sums in the first stage of a sum over columns.
    static constexpr int kRowsPerChunk = 64;

    /// Errors: invalid_argument, naming the size that does not fit and what it may be.
    Result<void> check() const;

    int rows() const { return batch * context; }
    int head_width() const { return width / heads; }
    int mlp_width() const { return kMlpFactor * width; }
    int chunks() const { return (rows() + kRowsPerChunk - 1) / kRowsPerChunk; }
    /// Elements of one tensor rows x width.
    std::int64_t row_elements() const { return std::int64_t{rows()} * width; }
    /// Elements of all attention matrices of one layer.
    std::int64_t attention_elements() const { return std::int64_t{rows()} * heads * context; }
};

/// Bytes on the device when nothing is offloaded.
struct Footprint {
    std::int64_t parameters;  ///< a number, not bytes
    std::int64_t weights_bytes;
    std::int64_t gradients_bytes;
    std::int64_t optimizer_bytes;
    std::int64_t activations_bytes;  ///< saved in the forward pass for the backward pass
    std::int64_t workspace_bytes;    ///< what is needed but not saved; never offloaded

    std::int64_t total_bytes() const {
        return weights_bytes + gradients_bytes + optimizer_bytes + activations_bytes +
               workspace_bytes;
    }
};

Footprint footprint_of(const ModelShape& shape);

}  // namespace frostline::train
