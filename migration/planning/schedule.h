// What happens when, over some steps of a trace on a machine: when kernels start, and which byte
// ranges of tensors move or are given up. A schedule is only a list; whether it is legal is for
// replay.h to say.
#pragma once

#include "migration/planning/machine.h"
#include "migration/planning/trace.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace frostline {

/// Bytes [offset, offset + size) of a tensor.
struct TensorRange {
    TensorIndex tensor = 0;
    std::uint64_t offset_bytes = 0;
    std::uint64_t size_bytes = 0;

    friend bool operator==(const TensorRange&, const TensorRange&) = default;
};

/// Where a part of a weight lies before the first step. A part may lie in several tiers.
struct ScheduledPlacement {
    TensorRange range;
    TierIndex tier = 0;
    friend bool operator==(const ScheduledPlacement&, const ScheduledPlacement&) = default;
};

struct ScheduledKernel {
    std::uint32_t step = 0;
    KernelIndex kernel = 0;
    std::uint64_t start_ns = 0;
    friend bool operator==(const ScheduledKernel&, const ScheduledKernel&) = default;
};

/// A copy: the source stays valid until it is dropped.
struct ScheduledMove {
    TensorRange range;
    TierIndex from = 0;
    TierIndex to = 0;
    std::uint64_t start_ns = 0;
    std::uint64_t end_ns = 0;
    friend bool operator==(const ScheduledMove&, const ScheduledMove&) = default;
};

/// One of several copies is given up.
struct ScheduledDrop {
    TensorRange range;
    TierIndex tier = 0;
    std::uint64_t at_ns = 0;
    friend bool operator==(const ScheduledDrop&, const ScheduledDrop&) = default;
};

struct Schedule {
    std::vector<ScheduledPlacement> init;
    std::vector<ScheduledKernel> kernels;
    std::vector<ScheduledMove> moves;
    std::vector<ScheduledDrop> drops;
    friend bool operator==(const Schedule&, const Schedule&) = default;
};

/// Reads the text format "frostline-schedule 1" (docs/formats.md), whose tensors and tiers are
/// those of `trace` and `machine`. Errors, with file and line in their message: invalid_argument,
/// not_found, io, out_of_memory.
Result<Schedule> read_schedule(const std::filesystem::path& path, const Trace& trace,
                               const Machine& machine) noexcept;
/// The same from memory; `name` stands for the file in messages.
Result<Schedule> parse_schedule(std::string_view text, std::string_view name, const Trace& trace,
                                const Machine& machine) noexcept;
/// The schedule as text. May throw std::bad_alloc.
std::string to_text(const Schedule& schedule, const Trace& trace, const Machine& machine);

}  // namespace frostline
