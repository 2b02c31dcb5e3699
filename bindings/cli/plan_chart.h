// One picture of a step in the middle of a schedule: what each tier holds, when kernels wait, and
// how busy each link is, above each other on one axis of time.
//
// Rule: nothing is drawn lower than it was. A column shows the most that a tier held in it, and a
// stall or a copy too short to see is drawn as wide as can be seen.
#pragma once

#include "bindings/cli/shown_step.h"
#include "bindings/trace_planning.h"

#include <string>
#include <string_view>

namespace frostline::cli {

/// Left and right of the axis, in units of the drawing.
inline constexpr double kChartLeft = 110;
inline constexpr double kChartRight = 14;

/// The colour's name for a tier in the pages' style.
std::string_view tier_colour(const Machine& machine, TierIndex tier) noexcept;

/// SVG, with the words that say what it shows.
std::string plan_chart(const PlanningProblem& problem, const ShownStep& step);

/// Text as HTML shows it.
std::string escaped(std::string_view text);

}  // namespace frostline::cli
