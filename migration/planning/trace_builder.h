// Makes traces, from a text or from what was recorded, and refuses what is none.
#pragma once

#include "migration/planning/trace.h"

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>

namespace frostline {

/// Not thread-safe. After an error the builder is as before the call. Errors of each call:
/// invalid_argument (with what is wrong), out_of_memory.
class TraceBuilder {
   public:
    /// A new tensor; `class_name` is `weight` or anything else.
    Result<TensorIndex> add_tensor(std::uint64_t id, std::uint64_t size_bytes,
                                   std::string_view class_name) noexcept;
    /// The next kernel. A tensor may be read and written, and is used once even if it is named
    /// twice.
    Result<void> add_kernel(std::uint64_t duration_ns, std::string_view name,
                            std::span<const TensorIndex> reads,
                            std::span<const TensorIndex> writes) noexcept;
    Result<void> add_recomputation(TensorIndex tensor, std::uint64_t duration_ns,
                                   std::span<const TensorIndex> reads) noexcept;
    /// The tensor with this id. Errors: not_found.
    Result<TensorIndex> find(std::uint64_t id) const noexcept;

    /// The trace; the builder is empty then. Errors: invalid_argument (no kernels).
    Result<Trace> finish() noexcept;

   private:
    std::uint32_t name_index(std::string_view name);

    Trace trace_;
    std::unordered_map<std::uint64_t, TensorIndex> by_id_;
};

}  // namespace frostline
