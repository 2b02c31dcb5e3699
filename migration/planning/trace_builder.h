// Makes traces, from a text or from what was recorded, and refuses what is none.
//
// Rule: whatever was added makes a Trace at every moment, or nothing was added.
#pragma once

#include "migration/planning/trace.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace frostline {

/// Not thread-safe. After an error the builder is as before the call. Errors of each call:
/// invalid_argument (with what is wrong), out_of_memory.
class TraceBuilder {
   public:
    /// The most that all sizes, and all durations, may add up to: 8 PiB, and 104 days. Up to there
    /// they are exact as `double`, too, and so are a few steps' sums as integers.
    static constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 53;
    static constexpr std::uint64_t kMostNs = std::uint64_t{1} << 53;

    /// A new tensor; `class_name` is `weight` or any other plain word (text_lines.h).
    Result<TensorIndex> add_tensor(std::uint64_t id, std::uint64_t size_bytes,
                                   std::string_view class_name) noexcept;
    /// The next kernel. A tensor may be read and written, and is used once even if it is named
    /// twice. `name` is a plain word.
    Result<void> add_kernel(std::uint64_t duration_ns, std::string_view name,
                            std::span<const TensorIndex> reads,
                            std::span<const TensorIndex> writes) noexcept;
    /// One for each tensor at most, and none that needs itself in the end. Budget: the number of
    /// reads; more only where an earlier recomputation reads `tensor`.
    Result<void> add_recomputation(TensorIndex tensor, std::uint64_t duration_ns,
                                   std::span<const TensorIndex> reads) noexcept;
    /// The tensor with this id. Errors: not_found.
    Result<TensorIndex> find(std::uint64_t id) const noexcept;

    /// The trace; the builder is empty then. Errors: invalid_argument (no kernels).
    Result<Trace> finish() noexcept;

   private:
    static constexpr std::uint32_t kNone = ~std::uint32_t{0};

    // What is known of a tensor beside what the trace has.
    struct Notes {
        std::uint64_t mark = 0;               // the last walk or list that came by
        std::uint32_t recomputation = kNone;  // in trace_.recomputations_
        bool is_recomputed_from = false;
    };
    struct NameHash {
        using is_transparent = void;
        std::size_t operator()(std::string_view name) const noexcept {
            return std::hash<std::string_view>()(name);
        }
    };

    std::uint32_t index_of_id(std::uint64_t id) const noexcept;
    std::uint32_t name_index(std::string_view name);
    Result<void> check_tensors(std::span<const TensorIndex> tensors) const noexcept;
    std::uint32_t add_uses(std::span<const TensorIndex> tensors) noexcept;
    bool needs(std::span<const TensorIndex> reads, TensorIndex tensor);

    Trace trace_;
    std::vector<Notes> notes_;  // by TensorIndex
    // Only the ids that are not their tensor's index, as they are in most traces.
    std::unordered_map<std::uint64_t, TensorIndex> by_id_;
    std::unordered_map<std::string, std::uint32_t, NameHash, std::equal_to<>> by_name_;
    std::uint64_t total_bytes_ = 0;
    std::uint64_t mark_ = 0;
};

}  // namespace frostline
