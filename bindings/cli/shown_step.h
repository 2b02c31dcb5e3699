// What happens in one step in the middle of a schedule, sorted into the columns of a chart.
//
// Rule: a column shows the most that a tier held in it, however short.
#pragma once

#include "bindings/trace_planning.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace frostline::cli {

inline constexpr std::size_t kChartColumns = 450;

/// The GPU waited so long for the kernel, until it started.
struct Stall {
    KernelIndex kernel = 0;
    std::uint64_t start_ns = 0;
    std::uint64_t waited_ns = 0;
};

/// A step from the end of the one before it to its own end, when the schedule has settled.
struct ShownStep {
    std::uint32_t step = 0;
    std::uint64_t from_ns = 0;
    std::uint64_t to_ns = 0;
    std::vector<Stall> stalls;                     ///< in the order of time
    std::vector<std::vector<std::uint64_t>> held;  ///< by tier and column, in bytes
    std::vector<std::vector<double>> carried;      ///< by link and column, in bytes
    std::vector<double> busy;                      ///< by link, the part of the time that it copies
};

/// The last step but one of a legal schedule. Errors: out_of_memory.
Result<ShownStep> shown_step(const PlanningProblem& problem, const PlanningResult& result);

}  // namespace frostline::cli
