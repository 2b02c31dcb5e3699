// One training step as a planner sees it: tensors, and kernels in the order in which they run, each
// with its duration and with what it reads and writes. The step repeats for ever.
//
// Rule: a Trace is what a machine could run if it had the memory. Every use names a tensor that
// exists, no size is zero, and sums fit their types; whoever holds one need not check again.
#pragma once

#include "tiers/result.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace frostline {

/// The first line of a trace as text.
inline constexpr std::string_view kTraceFormat = "frostline-trace 1";

/// A tensor's place in Trace::tensors(), and a kernel's in Trace::kernels().
using TensorIndex = std::uint32_t;
using KernelIndex = std::uint32_t;

/// Lives across steps if it is a weight; else it is born in the first kernel that touches it and
/// dead after the last.
struct TraceTensor {
    std::uint64_t id = 0;  ///< as the trace's author numbered it
    std::uint64_t size_bytes = 0;
    std::uint32_t class_name = 0;  ///< index in Trace::names()
    bool is_weight = false;
    bool is_used = false;  ///< if not, `first_use` and `last_use` say nothing
    KernelIndex first_use = 0;
    KernelIndex last_use = 0;
};

struct TraceKernel {
    std::uint64_t duration_ns = 0;
    std::uint32_t name = 0;       ///< index in Trace::names()
    std::uint32_t first_use = 0;  ///< in the list of all uses: reads first, then writes
    std::uint32_t reads = 0;
    std::uint32_t writes = 0;
};

/// `tensor` can be made again from the tensors in `reads` instead of being fetched.
struct Recomputation {
    TensorIndex tensor = 0;
    std::uint64_t duration_ns = 0;
    std::vector<TensorIndex> reads;
};

class TraceBuilder;

/// Immutable; safe to share between threads.
class Trace {
   public:
    std::span<const TraceTensor> tensors() const noexcept { return tensors_; }
    std::span<const TraceKernel> kernels() const noexcept { return kernels_; }
    std::span<const Recomputation> recomputations() const noexcept { return recomputations_; }
    const std::vector<std::string>& names() const noexcept { return names_; }

    std::span<const TensorIndex> reads(KernelIndex kernel) const noexcept {
        const TraceKernel& each = kernels_[kernel];
        return std::span(uses_).subspan(each.first_use, each.reads);
    }
    std::span<const TensorIndex> writes(KernelIndex kernel) const noexcept {
        const TraceKernel& each = kernels_[kernel];
        return std::span(uses_).subspan(each.first_use + each.reads, each.writes);
    }
    /// What the kernel reads, then what it writes; a tensor may stand in both.
    std::span<const TensorIndex> uses(KernelIndex kernel) const noexcept {
        const TraceKernel& each = kernels_[kernel];
        return std::span(uses_).subspan(each.first_use, each.reads + each.writes);
    }
    const std::string& name(KernelIndex kernel) const noexcept {
        return names_[kernels_[kernel].name];
    }
    /// The sum of all durations: a step on a machine with infinite memory.
    std::uint64_t ideal_ns() const noexcept { return ideal_ns_; }

   private:
    friend class TraceBuilder;
    Trace() = default;

    std::vector<TraceTensor> tensors_;
    std::vector<TraceKernel> kernels_;
    std::vector<TensorIndex> uses_;
    std::vector<Recomputation> recomputations_;
    std::vector<std::string> names_;
    std::uint64_t ideal_ns_ = 0;
};

/// Reads the text format "frostline-trace 1" (docs/formats.md). Errors, with file and line in their
/// message: invalid_argument (not the format, unknown or repeated ids, sizes or durations that are
/// no positive numbers or too large, kernels out of order, a truncated line); not_found, io (the
/// file); permission; out_of_memory. Budget: a million kernels in about a second.
Result<Trace> read_trace(const std::filesystem::path& path) noexcept;
/// The same from memory; `name` stands for the file in messages.
Result<Trace> parse_trace(std::string_view text, std::string_view name) noexcept;
/// The trace as text, which parse_trace() reads back as the same trace. May throw std::bad_alloc.
std::string to_text(const Trace& trace);

}  // namespace frostline
