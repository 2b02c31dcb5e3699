// One list of buffers and their sizes serves both the allocation and the sum of their bytes.
#include "bench/train/workspace.h"

#include "bench/train/kernels/arguments.h"
#include "bench/train/optimizer.h"
#include "bench/train/parameters.h"

#include <algorithm>

namespace frostline::train {
namespace {

// Calls visit(member, elements) for each buffer; stops at the first failure.
template <class Visit>
Result<void> visit_all(const ModelShape& shape, Workspace& work, const Visit& visit) {
    const std::int64_t rows = shape.rows();
    const std::int64_t elements = shape.row_elements();
    const std::int64_t logits = rows * ModelShape::kVocabulary;
    const std::int64_t widest = std::max(shape.mlp_width(), ModelShape::kVocabulary);
    FROSTLINE_TRY_VOID(visit(work.tokens, rows));
    FROSTLINE_TRY_VOID(visit(work.targets, rows));
    FROSTLINE_TRY_VOID(visit(work.token_starts, ModelShape::kVocabulary + 1));
    FROSTLINE_TRY_VOID(visit(work.sorted_rows, rows));
    FROSTLINE_TRY_VOID(visit(work.residual_gradient, elements));
    FROSTLINE_TRY_VOID(visit(work.branch_gradient, elements));
    FROSTLINE_TRY_VOID(visit(work.wide_gradient, rows * shape.mlp_width()));
    FROSTLINE_TRY_VOID(visit(work.attention_gradient, shape.attention_elements()));
    FROSTLINE_TRY_VOID(visit(work.transposed_heads, elements));
    FROSTLINE_TRY_VOID(visit(work.transposed_weights, shape.width * widest));
    FROSTLINE_TRY_VOID(visit(work.statistics, 2 * rows));
    FROSTLINE_TRY_VOID(visit(work.column_sums, std::int64_t{shape.chunks()} * shape.mlp_width()));
    FROSTLINE_TRY_VOID(visit(work.logits, logits));
    FROSTLINE_TRY_VOID(visit(work.logits_gradient, logits));
    FROSTLINE_TRY_VOID(visit(work.losses, rows));
    FROSTLINE_TRY_VOID(visit(work.square_sums, square_sum_count(shape)));
    return visit(work.clip_scale, 1);
}

}  // namespace

Result<Workspace> Workspace::create(const ModelShape& shape, DeviceBuffers& buffers) {
    Workspace work{};
    const auto allocate = [&]<class T>(T*& buffer, std::int64_t count) -> Result<void> {
        FROSTLINE_TRY(buffer, buffers.allocate<T>(count));
        return ok();
    };
    FROSTLINE_TRY_VOID(visit_all(shape, work, allocate));
    return work;
}

std::int64_t Workspace::size_bytes(const ModelShape& shape) {
    Workspace work{};
    std::int64_t sum = 0;
    const auto add = [&]<class T>(T*&, std::int64_t count) -> Result<void> {
        sum += count * static_cast<std::int64_t>(sizeof(T));
        return ok();
    };
    (void)visit_all(shape, work, add);
    return sum;
}

}  // namespace frostline::train
