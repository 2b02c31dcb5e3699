// The footprint is a formula and not a measurement, so that it can be asked for before running; a
// test compares it with what a run allocates.
#include "bench/train/model_shape.h"

#include "bench/train/parameters.h"
#include "bench/train/workspace.h"

namespace frostline::train {

Result<void> ModelShape::check() const {
    const auto positive = [](const char* name, int value, int most) -> Result<void> {
        if (value >= 1 && value <= most) return ok();
        return Error(Errc::invalid_argument, 0, "{} is {}; it may be 1 to {}", name, value, most);
    };
    // The largest that the kernels' 32-bit indices and a grid's limits take, with room to spare.
    FROSTLINE_TRY_VOID(positive("layers", layers, 1000));
    FROSTLINE_TRY_VOID(positive("width", width, 16384));
    FROSTLINE_TRY_VOID(positive("heads", heads, 256));
    FROSTLINE_TRY_VOID(positive("context", context, 8192));
    FROSTLINE_TRY_VOID(positive("batch", batch, 1024));
    if (width % heads != 0) {
        return Error(Errc::invalid_argument, 0, "width {} is no multiple of heads {}", width,
                     heads);
    }
    constexpr std::int64_t kMostRows = std::int64_t{1} << 19;
    if (std::int64_t{batch} * context > kMostRows) {
        return Error(Errc::invalid_argument, 0, "batch {} of context {}: more than {} tokens",
                     batch, context, kMostRows);
    }
    constexpr std::int64_t kMostElements = std::int64_t{1} << 31;
    if (row_elements() > kMostElements) {
        return Error(Errc::invalid_argument, 0, "batch {} of context {} and width {}: more than {}",
                     batch, context, width, kMostElements);
    }
    if (batch * heads > 65535) {
        return Error(Errc::invalid_argument, 0, "batch {} with {} heads: more than 65535 together",
                     batch, heads);
    }
    return ok();
}

Footprint footprint_of(const ModelShape& shape) {
    constexpr std::int64_t kFloat = sizeof(float);
    // Of each layer: its input, both norms, queries with keys and values, what attention gives, the
    // sum in the middle, and the MLP before and after GELU. At the end: input and result of the
    // last norm.
    constexpr std::int64_t kRowTensors = 1 + 2 + 3 + 1 + 1 + 2 * ModelShape::kMlpFactor;
    const std::int64_t per_layer = kRowTensors * shape.row_elements() + shape.attention_elements();
    Footprint result{};
    result.parameters = count_of<EmbeddingTensors>(shape).all +
                        shape.layers * count_of<BlockTensors>(shape).all +
                        count_of<HeadTensors>(shape).all;
    result.weights_bytes = result.parameters * kFloat;
    result.gradients_bytes = result.weights_bytes;
    result.optimizer_bytes = 2 * result.weights_bytes;
    result.activations_bytes = (shape.layers * per_layer + 2 * shape.row_elements()) * kFloat;
    result.workspace_bytes = Workspace::size_bytes(shape);
    return result;
}

}  // namespace frostline::train
